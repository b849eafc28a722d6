"""The methods there are: each a file, and a line here."""

from ._cholesky import Cholesky as Cholesky
from ._complete_orthogonal import CompleteOrthogonal as CompleteOrthogonal
from ._gram_schmidt import GramSchmidt as GramSchmidt
from ._greville import Greville as Greville
from ._householder import HouseholderQR as HouseholderQR
from ._svd import SVD as SVD
