"""Benchmark problems of the field, measured against independent references, with a work-precision diagram."""

from ._cases import CASES as CASES
from ._figure import work_precision as work_precision
from ._run import BenchResult as BenchResult
from ._run import bench as bench
from ._run import machine as machine
