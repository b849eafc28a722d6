"""Moore-Penrose inverses: each method a class, one rank rule and one derivative for all of them.

As a namespace: `ukjax.pseudoinverses`.
"""

from ._base import DEFAULT_RCOND as DEFAULT_RCOND
from ._base import ROW_NOISE as ROW_NOISE
from ._base import AbstractPseudoinverse as AbstractPseudoinverse
from ._base import RankedInverse as RankedInverse
from ._base import rank_on_host as rank_on_host
from ._base import solve_on_host as solve_on_host
from ._base import solving as solving
from ._base import unit_rows_on_host as unit_rows_on_host
from ._kernels import inverse_cholesky as inverse_cholesky
from ._kernels import inverse_cholesky_factor as inverse_cholesky_factor
from ._methods import SVD as SVD
from ._methods import Cholesky as Cholesky
from ._methods import CompleteOrthogonal as CompleteOrthogonal
from ._methods import GramSchmidt as GramSchmidt
from ._methods import Greville as Greville
from ._methods import HouseholderQR as HouseholderQR
from ._pinv import Lineax as Lineax
from ._pinv import NormalEquations as NormalEquations
from ._pinv import as_pseudoinverse as as_pseudoinverse
from ._pinv import pinv as pinv
