"""Tuning: gains found by gradient descent through simulated runs; and identification from measured series."""

from ._loss import ViolationLoss as ViolationLoss
from ._result import TuneResult as TuneResult
from ._tune import tune as tune
