"""Tuning of gains: the loss, the gains as logarithms, the search by Optax, and its result."""

from ._loss import ViolationLoss as ViolationLoss
from ._result import TuneResult as TuneResult
from ._tune import tune as tune
