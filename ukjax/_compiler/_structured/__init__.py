"""Programs of scalars with loops, branches and arrays, traced from JAX: representation, derivatives, machine code."""

from ._scalarize import Scalarized as Scalarized
from ._scalarize import scalarize as scalarize
