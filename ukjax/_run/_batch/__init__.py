"""Whole runs as machine code: in a batch none waits for another, each takes steps of its own."""

from ._whole import Whole as Whole
from ._whole import whole_run as whole_run
