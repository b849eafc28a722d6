"""Inputs: what actuators and joint efforts do to a system, as columns of generalized forces."""

from collections.abc import Callable, Iterable
from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._arguments import call_user_function, real_array, require_function
from .._misc._errors import InputError
from .._misc._types import Coordinates, Forces, Time, Velocities
from .._system._labels import make_indexed_names, own_labels
from .._system._system import AbstractSystem
from ..mechanisms._abstract_joint import AbstractAxisJoint
from ..mechanisms._loads import Actuator
from ..mechanisms._start import InputMatrix
from ..mechanisms._tree import TreeSystem
from ..robots._actuators import ControlMatrix, control_matrix
from ._states import MechanismSystem, mechanism_of, select_names

Inputs = Iterable[str] | Array | Callable[[Time, Coordinates], Array] | None
"""Names of actuators and joints; or B_u (n, p), or a function of (t, q) that returns it; or None for what there is."""


@final
class Constant(eqx.Module):
    """An input matrix that does not depend on the state."""

    B: Float[Array, "n p"]  # (n, p)
    labels: tuple[str, ...] = eqx.field(static=True, default=())  # names of the inputs

    def __call__(self, t: Time, q: Coordinates) -> Float[Array, "n p"]:
        return self.B


@final
class MatrixForce(eqx.Module):
    """The generalized force B_u(t, q) u of inputs u."""

    matrix: Callable[[Time, Coordinates], Array]  # B_u, a function of (t, q)

    def __call__(self, t: Time, q: Coordinates, v: Velocities, u: Array) -> Forces:
        if isinstance(self.matrix, ControlMatrix):  # which may depend on v, too, as of muscles
            return self.matrix.force(t, q, v, u)
        return self.matrix(t, q) @ u


def _actuators(system: MechanismSystem, names: Any, every: bool) -> tuple[Actuator, ...]:
    """Actuators by their names or by those of joints; by default all there are, without any all joints if so wished."""
    known = {load.name: load for load in system.loads if isinstance(load, Actuator)}
    joints = {j.name: Actuator(j.name, j) for j in system.joints if isinstance(j, AbstractAxisJoint)}
    if names is None:
        return tuple((known or (joints if every else {})).values())
    return tuple((joints | known)[name] for name in select_names("actuator or joint", names, joints | known))


def input_matrix_of(
    system: AbstractSystem, inputs: Inputs, t: Time, q: Coordinates, n: int, *, every: bool
) -> tuple[Callable[[Time, Coordinates], Array], tuple[str, ...], tuple[Actuator, ...]]:
    """B_u as a function of (t, q), the names of the inputs, and of a mechanism its actuators."""
    mechanism = mechanism_of(system)
    named = inputs is None or (isinstance(inputs, Iterable) and not hasattr(inputs, "shape"))
    if named and mechanism is not None and not (inputs is None and not _actuators(mechanism, None, every)):
        actuators = _actuators(mechanism, inputs, every)
        matrix = InputMatrix(mechanism, actuators)
        return matrix, matrix.labels, actuators
    if inputs is None and not every and isinstance(mechanism, TreeSystem):
        inputs = control_matrix(mechanism)
    texts = [x for x in inputs if isinstance(x, str)] if isinstance(inputs, list | tuple) else []
    if texts:
        raise InputError(
            f"inputs names '{texts[0]}', but {type(system).__name__} has no joints or actuators with names: give "
            f"B_u (n, p), a column for each input, such as jnp.eye({n})[:, :1] for a force on the first velocity."
        )
    if inputs is None:
        return Constant(jnp.eye(n, dtype=q.dtype)[:, : n if every else 0]), (), ()
    if callable(inputs):
        require_function("inputs", inputs, "t, q")
        matrix: Any = inputs
    else:
        matrix = Constant(real_array("inputs", inputs).astype(q.dtype))
    B = eqx.filter_eval_shape(lambda t, q: call_user_function("inputs", matrix, t, q), t, q)
    if len(B.shape) != 2 or B.shape[0] != n:
        raise InputError(
            f"inputs has shape {B.shape}; with {n} velocities it must be ({n}, p), a column for each input."
        )
    return matrix, own_labels(matrix, "labels", B.shape[1]) or make_indexed_names("u", B.shape[1]), ()
