"""Forward kinematics: where named frames are, how they move with v, and what of their acceleration is not v'.

The twist of a frame is linear in the velocities (quasi-velocities too), and so

    (omega, x') = J(q) v,        (omega', x'') = J v' + J' v,

where the bias J' v is the derivative of J(q) v along q' = N(q) v with v held fixed.
"""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._compiler import compile_small
from .._misc._closures import hoist_tracers
from .._misc._errors import InputError, unknown_name
from .._misc._types import Coordinates, Numbers, Time, Velocities, in_full_precision
from .._system._problem import Problem
from .._system._system import AbstractSystem
from ..mechanisms._bodies import GROUND
from ..mechanisms._placement import AnyPlacement, PlanarPlacement, rate_of
from ..robots._robot import Frames
from ._states import MechanismSystem, bodies_at, mechanism_of, require_mechanism, select_names, state_of


@final
class Frame(eqx.Module):
    """Where a body or a named point of it is.

    - `position`: of the body's centre of mass, or of the point [m] (3,) or (2,).
    - `rotation`: of the body from the reference posture, body to world axes (3, 3); in the plane the angle [rad]; None
      for a point of a system that has no bodies.
    """

    position: Array
    rotation: Array | None


@final
class Jacobian(eqx.Module):
    """How a frame moves: its twist `matrix @ v`, angular part first, and its acceleration `matrix @ v' + bias`.

    - `frame`: where it is.
    - `matrix`: J, (6, n); in the plane (3, n); for a point of a system that has no bodies (2, n) or (3, n).
    - `velocity`: J v: angular velocity in world axes [rad/s], then velocity [m/s].
    - `bias`: J' v [rad/s^2], [m/s^2].
    - `turning`: how many rows are angular: 3, in the plane 1, of a system that has no bodies 0.
    """

    frame: Frame
    matrix: Float[Array, "k n"]
    velocity: Float[Array, " k"]
    bias: Float[Array, " k"]
    turning: int = eqx.field(static=True)

    @property
    def angular(self) -> Float[Array, "r n"]:
        """The rows of the angular velocity."""
        return self.matrix[: self.turning]

    @property
    def linear(self) -> Float[Array, "d n"]:
        """The rows of the velocity of the point."""
        return self.matrix[self.turning :]


def frame_names(mechanism: MechanismSystem) -> list[str]:
    """The names of all bodies and their points."""
    return [x for b in mechanism.bodies for x in (b.name, *(f"{b.name}.{key}" for key in b.points))]


def owner_of(mechanism: MechanismSystem, name: str) -> tuple[str, Array | None]:
    """The body that carries a frame, and its point in the reference posture; None for the centre of mass."""
    for body in mechanism.bodies if isinstance(name, str) else ():
        if name == body.name:
            return name, None
    points = {(b.name, key): X for b in mechanism.bodies for key, X in b.points.items()}
    own = [at for at in points if name == f"{at[0]}.{at[1]}"] or [at for at in points if name == at[1]]
    if len(own) == 1:
        return own[0][0], points[own[0]]
    raise unknown_name("body or point", name, frame_names(mechanism))


def frame_of(placement: AnyPlacement, X: Array | None) -> Frame:
    """The frame at a point of a body."""
    turned = placement.angle if isinstance(placement, PlanarPlacement) else placement.R
    return Frame(placement.p if X is None else placement.point(X.astype(placement.p.dtype)), turned)


def _compute_frame_motion(
    of: MechanismSystem | Problem, name: str, t: Time, q: Coordinates, v: Velocities
) -> tuple[Float[Array, " k"], Frame]:
    """How a frame moves, and where it is."""
    if isinstance(of, Problem):
        at = lambda t, q: of.points(t, q)[name]  # pyright: ignore[reportOptionalCall]
        place, rate = jax.jvp(at, (t, q), (jnp.ones_like(t), of.system.kinematics(t, q, v)))
        return rate, Frame(place, None)
    body, X = owner_of(of, name)
    placements, twists = bodies_at(of, q, [body])
    placement, twist = placements[body], twists(v)[body]
    X = placement.centre if X is None else X.astype(q.dtype)
    velocity = rate_of(lambda p: p.point(X), [placement], [twist])
    return jnp.concatenate([jnp.atleast_1d(twist.omega), velocity]), frame_of(placement, X)


@compile_small
@in_full_precision
def _jacobian(of: MechanismSystem | Problem, name: str, t: Time, q: Coordinates, v: Velocities) -> Jacobian:
    system = of.system if isinstance(of, Problem) else of
    velocity, frame = _compute_frame_motion(of, name, t, q, v)
    matrix = jax.jacfwd(lambda v: _compute_frame_motion(of, name, t, q, v)[0])(v)
    rates = jnp.ones_like(t), system.kinematics(t, q, v)
    bias = jax.jvp(lambda t, q: _compute_frame_motion(of, name, t, q, v)[0], (t, q), rates)[1]
    return Jacobian(frame, matrix, velocity, bias, velocity.size - frame.position.size)


def _still_jacobian(place: Float[Array, "3"], v: Velocities) -> Jacobian:
    """Of a robot's frame that does not move."""
    still = jnp.zeros(6, v.dtype)
    return Jacobian(Frame(place, jnp.eye(3, dtype=v.dtype)), jnp.zeros((6, v.size), v.dtype), still, still, 3)


def jacobian(
    system: AbstractSystem | Problem,
    frame: str,
    t: Time | float | None = None,
    q: Numbers | None = None,
    v: Numbers | None = None,
) -> Jacobian:
    """The Jacobian of a body or a named point with respect to the velocities v, with its bias J' v.

    **Arguments:**

    - `system`: a mechanism, or a `Problem` of one, which brings its state; or a `Problem` with named `points`, of which
      there are velocities only. Of a robot's, also the sites and bodies that do not move.
    - `frame`: a body (its centre of mass), a point as `body.point`, or a named point of the problem.
    - `t`: time [s].
    - `q`: generalized coordinates (n_q,); by default of a mechanism the reference posture.
    - `v`: generalized velocities (n,); by default zero.

    **Returns:** `Jacobian`.

    **Raises:** `InputError` for a name that is not known, and for a state of wrong shape.
    """
    own, t, q, v = state_of(system, t, q, v)
    mechanism = mechanism_of(own)
    points = system.points if isinstance(system, Problem) else None
    if isinstance(points, Frames) and points.carriers.get(frame) == GROUND:
        return _still_jacobian(points.places[frame].astype(q.dtype), v)
    if mechanism is not None:
        owner_of(mechanism, frame)
        return _jacobian(mechanism, frame, t, q, v)
    if not isinstance(system, Problem) or system.points is None:
        raise InputError(
            f"{type(own).__name__} has no named points: give a mechanism, or a Problem with `points`."
        )
    select_names("point", [frame], eqx.filter_eval_shape(system.points, t, q))
    return _jacobian(hoist_tracers(system), frame, t, q, v)


@compile_small
def _frames(mechanism: MechanismSystem, q: Coordinates) -> dict[str, Frame]:
    placements, _ = bodies_at(mechanism, q, [body.name for body in mechanism.bodies])
    owners = {name: owner_of(mechanism, name) for name in frame_names(mechanism)}
    return {name: frame_of(placements[body], X) for name, (body, X) in owners.items()}


def frames(
    system: AbstractSystem | Problem, t: Time | float | None = None, q: Numbers | None = None
) -> dict[str, Frame]:
    """Where all bodies and their named points are, orientations included: forward kinematics.

    **Arguments:**

    - `system`: a mechanism, or a `Problem` of one, which brings its state.
    - `t`: time [s].
    - `q`: generalized coordinates (n_q,); by default the problem's, or the reference posture.

    **Returns:** a `Frame` by name: of each body, and of each point as `body.point`.

    **Raises:** `InputError` for a system that is no mechanism, and for a state of wrong shape.
    """
    own, _, q, _ = state_of(system, t, q, None)
    mechanism = require_mechanism(own)
    placed = _frames(mechanism, q)  # sorted by name
    return {name: placed[name] for name in frame_names(mechanism)}
