"""The field's benchmark problems, measured: cases, independent references, runs and the work-precision diagram."""

from ._cases import CASES as CASES
from ._figure import work_precision as work_precision
from ._run import BenchResult as BenchResult
from ._run import bench as bench
from ._run import machine as machine
