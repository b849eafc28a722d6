"""Levels of constraints: their algebra, modules, and the recursive formula.

As a namespace: `ukjax.hierarchy`.
"""

from ._hierarchy import null_space_bases as null_space_bases
from ._hierarchy import oblique_projectors as oblique_projectors
from ._hierarchy import one_four_inverses as one_four_inverses
from ._hierarchy import orthogonal_projectors as orthogonal_projectors
from ._hierarchy import orthonormal_rows as orthonormal_rows
from ._kalman import Enforced as Enforced
from ._kalman import enforce_levels as enforce_levels
from ._levels import Module as Module
from ._levels import find_modules as find_modules
from ._recursive import Recursive as Recursive
from ._recursive import at_level as at_level
from ._recursive import recursive_levels as recursive_levels
