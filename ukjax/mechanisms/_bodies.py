"""Bodies: mass, centre of mass and inertia, given once in the reference posture, in world coordinates."""

import abc
from collections.abc import Mapping
from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._arguments import fails, one_of, real_array, require_finite, require_instance
from .._misc._errors import InputError
from .._misc._types import as_jax, is_traced, module_for
from ._placement import AnyPlacement, Twist

_SHAPES = {2: ("", "rod", "box", "disk", "joints"), 3: ("", "rod", "box", "disk", "joints", "ball")}
"""By dimension, the words for what a body is shown as."""
GROUND = "ground"
"""The name of what does not move; joints and loads may refer to it like to a body."""


def check_name(what: str, name: Any) -> str:
    """A name as given, if it is one."""
    if not isinstance(name, str) or not name:
        raise InputError(f"the name of a {what} must be a word, got {name!r}.")
    return name


def check_array(what: str, value: Any, *shapes: tuple[int, ...]) -> Array:
    """A finite real array of one of some shapes."""
    array = real_array(what, value)
    if array.shape not in shapes:
        allowed = " or ".join(str(shape) for shape in shapes)
        raise InputError(f"{what} must have shape {allowed}, got {array.shape}.")
    require_finite(what, value)
    return array


def check_positive_scalar(what: str, value: Any) -> Float[Array, ""]:
    """A scalar greater than zero."""
    array = check_array(what, value, ())
    if fails(lambda x: x > 0, value):
        raise InputError(f"{what} must be greater than 0, got {float(value):g}.")
    return array


def check_nonnegative(what: str, value: Any, shape: tuple[int, ...] = ()) -> Array:
    """Lengths that may be zero."""
    array = check_array(what, value, shape)
    if fails(lambda x: x >= 0, value):
        raise InputError(f"{what} must not be negative, got {value}.")
    return array


class AbstractBody(eqx.Module):
    """A body of a mechanism. Concrete ones: `Body`, `PlanarBody`, `PointMass`."""

    name: eqx.AbstractVar[str]
    mass: eqx.AbstractVar[Array]
    centre: eqx.AbstractVar[Array]
    points: eqx.AbstractVar[dict[str, Array]]

    @property
    def dimension(self) -> int:
        """2 in the plane, 3 in space."""
        return self.centre.shape[0]

    @abc.abstractmethod
    def kinetic_energy(self, placement: AnyPlacement, twist: Twist) -> Float[Array, ""]:
        """1/2 m v.v + 1/2 omega . I omega [J]."""


def _check_points(name: str, points: Mapping[str, Any] | None, dimension: int) -> dict[str, Array]:
    points = {} if points is None else points
    require_instance(f"the points of body '{name}'", points, Mapping, "{'tip': [1.0, 0.0]}")
    return {
        check_name("point", key): check_array(f"point '{key}' of body '{name}'", x, (dimension,))
        for key, x in points.items()
    }


def _check_body_name(name: Any) -> str:
    if check_name("body", name) == GROUND:
        raise InputError(f"a body cannot be called '{GROUND}': that name is taken by what does not move.")
    return name


def _check_inertia(name: str, inertia: Any) -> Float[Array, "3 3"]:
    """The inertia matrix, symmetric, without negative moments, the largest no more than the other two together."""
    what = f"the inertia of body '{name}'"
    given = check_array(what, inertia, (3,), (3, 3))
    matrix = as_jax(module_for(given).diag(given)) if given.ndim == 1 else given
    if is_traced(inertia):
        return matrix
    # Not of `matrix`, which within `jit` is traced.
    known = np.asarray(inertia, float)
    known = np.diag(known) if known.ndim == 1 else known
    tolerance = 100.0 * np.finfo(matrix.dtype).eps * np.max(np.abs(known))
    if not np.allclose(known, known.T, rtol=0, atol=tolerance):
        raise InputError(f"{what} must be a symmetric matrix.")
    moments = np.linalg.eigvalsh(known)
    if moments[0] < -tolerance:
        raise InputError(f"{what} must have no negative principal moment, got {moments[0]:g}.")
    if moments[0] + moments[1] < moments[2] - tolerance:
        raise InputError(
            f"{what} violates the triangle inequality: its principal moments {moments[0]:g} and {moments[1]:g} "
            f"must together be at least the third, {moments[2]:g}."
        )
    return matrix


@final
class Body(AbstractBody):
    """A rigid body in space.

    An inertia may be semidefinite, as that of a slender rod about its axis. In absolute coordinates the mass matrix
    is then singular: `RangeForm` simulates it, or give the rod a radius.

    **Arguments:**

    - `name`: any but `"ground"`.
    - `mass`: [kg].
    - `centre`: centre of mass in the reference posture, in the world [m] (3,).
    - `inertia`: about the centre of mass, in world axes at the reference posture [kg m^2] (3, 3), or its diagonal (3,).
    - `points`: further points to be reported: name -> place in the reference posture [m] (3,).
    - `shape`: what it is shown as: `"rod"` from its point `start` to `end`, `"box"`, `"disk"` or `"ball"`, of such a size
      that the mass, spread evenly, has this inertia; `"joints"` as lines through its joints; by default lines through its
      points, or through its joints.

    **Raises:** `InputError` for a mass that is not positive, and for an inertia that no body can have.
    """

    name: str = eqx.field(static=True)
    mass: Float[Array, ""]
    centre: Float[Array, "3"]
    inertia: Float[Array, "3 3"]
    points: dict[str, Array]
    shape: str = eqx.field(static=True)

    def __init__(
        self,
        name: str,
        mass: Any,
        centre: Any,
        inertia: Any,
        points: Mapping[str, Any] | None = None,
        shape: str = "",
    ):
        self.name = _check_body_name(name)
        self.mass = check_positive_scalar(f"the mass of body '{name}'", mass)
        self.centre = check_array(f"the centre of body '{name}'", centre, (3,))
        self.inertia = _check_inertia(name, inertia)
        self.points = _check_points(name, points, 3)
        self.shape = one_of(f"the shape of body '{name}'", shape, _SHAPES[3])

    def kinetic_energy(self, placement: AnyPlacement, twist: Twist) -> Float[Array, ""]:
        omega = placement.back(twist.omega)
        return 0.5 * (
            self.mass * jnp.dot(twist.velocity, twist.velocity) + jnp.dot(omega, self.inertia @ omega)
        )


@final
class PlanarBody(AbstractBody):
    """A rigid body in the plane, with coordinates (x, y, theta).

    **Arguments:**

    - `name`: any but `"ground"`.
    - `mass`: [kg].
    - `centre`: centre of mass in the reference posture, in the world [m] (2,).
    - `inertia`: about the centre of mass [kg m^2].
    - `angle`: theta in the reference posture [rad]; only shifts what the coordinate counts from.
    - `points`: further points to be reported: name -> place in the reference posture [m] (2,).
    - `shape`: what it is shown as, as of a `Body`; no ball, and a box has its `edges`.
    - `edges`: of a box [m] (2,), since the one inertia does not tell them.

    **Raises:** `InputError` for a mass or an inertia that is not positive.
    """

    name: str = eqx.field(static=True)
    mass: Float[Array, ""]
    centre: Float[Array, "2"]
    inertia: Float[Array, ""]
    angle: Float[Array, ""]
    points: dict[str, Array]
    shape: str = eqx.field(static=True)
    edges: Float[Array, "2"] | None

    def __init__(
        self,
        name: str,
        mass: Any,
        centre: Any,
        inertia: Any,
        angle: Any = 0.0,
        points: Mapping[str, Any] | None = None,
        shape: str = "",
        edges: Any = None,
    ):
        self.name = _check_body_name(name)
        self.mass = check_positive_scalar(f"the mass of body '{name}'", mass)
        self.centre = check_array(f"the centre of body '{name}'", centre, (2,))
        self.inertia = check_positive_scalar(f"the inertia of body '{name}'", inertia)
        self.angle = check_array(f"the angle of body '{name}'", angle, ())
        self.points = _check_points(name, points, 2)
        self.shape = one_of(f"the shape of body '{name}'", shape, _SHAPES[2])
        self.edges = None if edges is None else check_nonnegative(f"the edges of body '{name}'", edges, (2,))
        if (shape == "box") != (edges is not None):
            raise InputError(
                f"the edges of body '{name}' in the plane go with the shape 'box', and it with them."
            )

    def kinetic_energy(self, placement: AnyPlacement, twist: Twist) -> Float[Array, ""]:
        return 0.5 * (self.mass * jnp.dot(twist.velocity, twist.velocity) + self.inertia * twist.omega**2)


@final
class PointMass(AbstractBody):
    """A point mass, in the plane or in space: it has a place and no orientation.

    **Arguments:**

    - `name`: any but `"ground"`.
    - `mass`: [kg].
    - `centre`: its place in the reference posture, in the world [m] (2,) or (3,).

    **Raises:** `InputError` for a mass that is not positive.
    """

    name: str = eqx.field(static=True)
    mass: Float[Array, ""]
    centre: Float[Array, " d"]
    points: dict[str, Array]

    def __init__(self, name: str, mass: Any, centre: Any):
        self.name = _check_body_name(name)
        self.mass = check_positive_scalar(f"the mass of body '{name}'", mass)
        self.centre = check_array(f"the place of point mass '{name}'", centre, (2,), (3,))
        self.points = {}

    def kinetic_energy(self, placement: AnyPlacement, twist: Twist) -> Float[Array, ""]:
        return 0.5 * self.mass * jnp.dot(twist.velocity, twist.velocity)
