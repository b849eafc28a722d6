"""Functions of constraints that are evaluated together, so that tracing them once serves all."""

import abc
from collections.abc import Sequence
from typing import Any

import equinox as eqx
from jaxtyping import Array


class AbstractTogether(eqx.Module):
    """A constraint's function that is evaluated together with all others of its type, as those of joints are."""

    @staticmethod
    @abc.abstractmethod
    def together(functions: Sequence[Any], *arguments: Array) -> list[Array]:
        """What each function returns.

        **Arguments:**

        - `functions`: all of this type.
        - `arguments`: the same for each.
        """
