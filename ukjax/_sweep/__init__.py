"""Sweeps: many runs that differ in parameters, computed in chunks of bounded memory and stored as they finish."""

from ._samples import AbstractSamples as AbstractSamples
from ._samples import Grid as Grid
from ._samples import LatinHypercube as LatinHypercube
from ._samples import Sobol as Sobol
from ._samples import Table as Table
from ._sweep import sweep as sweep
