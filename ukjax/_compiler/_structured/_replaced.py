"""Functions in plain JAX in place of what JAX itself leaves to LAPACK, to XLA or to C++.

Each stands for a primitive of JAX, with its operands, parameters and outputs.
"""

from collections.abc import Callable
from typing import Any

from . import _bits, _dense, _special, _windows

REPLACED: dict[str, Callable[..., Any]] = (
    _dense.FUNCTIONS | _special.FUNCTIONS | _windows.FUNCTIONS | _bits.FUNCTIONS
)

DIFFERENTIATED_BY_JAX = frozenset(("qr", "eigh", "svd", *_special.DIFFERENTIATED_BY_JAX))
"""What has a derivative of its own: that of an iteration would be another where it stops early."""
