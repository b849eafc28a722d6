"""Tuning: gains found by gradient descent through simulated runs."""

from ._loss import ViolationLoss as ViolationLoss
from ._result import TuneResult as TuneResult
from ._tune import tune as tune
