"""Optimal control: the inputs of least cost that bring a mechanism where it should be."""

from ._plan import plan as plan
from ._result import PlanResult as PlanResult
