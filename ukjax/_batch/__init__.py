"""Batches of runs that do not wait for each other: each run takes steps of its own."""

from ._adjoint import Pooled as Pooled
from ._adjoint import can_be_pooled as can_be_pooled
from ._whole import Whole as Whole
from ._whole import whole_run as whole_run
