"""Batches of integrations without lockstep: a pool of lanes, each at a step of its own run."""

from ._adjoint import Pooled as Pooled
from ._adjoint import can_be_pooled as can_be_pooled
from ._whole import Whole as Whole
from ._whole import whole_run as whole_run
