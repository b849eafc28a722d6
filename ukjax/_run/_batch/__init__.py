"""Whole runs, as machine code or in a pool: in a batch none waits for another, each takes steps of its own."""

from ._pool import Pooled as Pooled
from ._pool import can_be_pooled as can_be_pooled
from ._whole import Whole as Whole
from ._whole import whole_run as whole_run
