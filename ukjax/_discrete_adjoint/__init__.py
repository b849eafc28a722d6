"""Reverse mode through the steps a run took."""

from ._adjoint import DiscreteAdjoint as DiscreteAdjoint
from ._adjoint import goes_back_by_steps as goes_back_by_steps
from ._adjoint import integrate as integrate
from ._record import Arguments as Arguments
