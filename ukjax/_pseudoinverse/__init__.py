"""Moore-Penrose inverses: one method a file, one rank rule and one derivative for all of them."""

from ._base import DEFAULT_RCOND as DEFAULT_RCOND
from ._base import AbstractPseudoinverse as AbstractPseudoinverse
from ._base import Pseudoinverse as Pseudoinverse
from ._cholesky import Cholesky as Cholesky
from ._complete_orthogonal import CompleteOrthogonal as CompleteOrthogonal
from ._gram_schmidt import GramSchmidt as GramSchmidt
from ._greville import Greville as Greville
from ._householder import HouseholderQR as HouseholderQR
from ._lineax import Lineax as Lineax
from ._lineax import as_pseudoinverse as as_pseudoinverse
from ._normal_equations import NormalEquations as NormalEquations
from ._on_host import solved_on_host as solved_on_host
from ._on_host import unit_rows_on_host as unit_rows_on_host
from ._pinv import pinv as pinv
from ._scaling import ROW_NOISE as ROW_NOISE
from ._svd import SVD as SVD
from ._triangular import inverse_cholesky as inverse_cholesky
