"""Mass properties: total mass, centre of mass, momentum, and the inertia of all bodies together.

With c = sum m_i x_i / m and the angular momentum about a point o,

    p = sum m_i x_i',        L_o = sum I_i omega_i + (x_i - o) x m_i x_i',        (L_o; p) = momentum_matrix(q) v,

where the matrix about the centre of mass is the centroidal momentum matrix (Orin, Goswami and Lee 2013).
"""

from collections.abc import Iterable
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._compiler import compile_small
from .._misc._types import Coordinates, MassMatrix, Numbers, Time, Velocities, in_full_precision
from .._system._problem import Problem
from .._system._system import AbstractSystem
from ..mechanisms._bodies import AbstractBody, Body, PlanarBody, check_array
from ..mechanisms._mechanism import sum_of
from ..mechanisms._placement import AnyPlacement, Placement, Twist, moment
from ._states import MechanismSystem, bodies_at, require_mechanism, select_names, state_of


@final
class MassProperties(eqx.Module):
    """Mass, momentum and inertia of bodies, in world axes; in the plane what is about its normal is a scalar.

    - `mass`: total [kg].
    - `centre`: centre of mass [m] (3,) or (2,).
    - `velocity`: of the centre of mass [m/s].
    - `jacobian`: of the centre of mass, `velocity = jacobian @ v` (3, n) or (2, n).
    - `momentum`: p [kg m/s].
    - `angular_momentum`: about `about`, by default the centre of mass [kg m^2/s] (3,), a scalar in the plane.
    - `momentum_matrix`: (angular momentum, momentum) = `momentum_matrix @ v` (6, n), in the plane (3, n).
    - `inertia`: of all bodies as if they were one, about `about` [kg m^2] (3, 3), a scalar in the plane.
    - `mass_matrix`: M(q) of the whole system (n, n).
    - `kinetic_energy`: of these bodies [J].
    """

    mass: Float[Array, ""]
    centre: Array
    velocity: Array
    jacobian: Float[Array, "d n"]
    momentum: Array
    angular_momentum: Array
    momentum_matrix: Float[Array, "k n"]
    inertia: Array
    mass_matrix: MassMatrix
    kinetic_energy: Float[Array, ""]


def _own_inertia(body: AbstractBody, placement: AnyPlacement) -> Array:
    """About the body's centre of mass, in world axes."""
    if isinstance(placement, Placement):
        R = placement.R
        return R @ body.inertia.astype(R.dtype) @ R.T if isinstance(body, Body) else jnp.zeros_like(R)
    about = body.inertia if isinstance(body, PlanarBody) else jnp.zeros(())
    return about.astype(placement.p.dtype)


def _compute_steiner_term(arm: Array) -> Array:
    """What a unit mass at the end of an arm adds to an inertia."""
    square = jnp.dot(arm, arm)
    return square * jnp.eye(3, dtype=arm.dtype) - jnp.outer(arm, arm) if arm.shape == (3,) else square


@compile_small
@in_full_precision
def _mass_properties(
    system: MechanismSystem,
    names: tuple[str, ...],
    about: Array | None,
    t: Time,
    q: Coordinates,
    v: Velocities,
) -> MassProperties:
    bodies = [system.mechanism.by_name[name] for name in names]
    placements, twists = bodies_at(system, q, names)
    places = [placements[name] for name in names]
    masses = [body.mass.astype(q.dtype) for body in bodies]
    own = [_own_inertia(body, at) for body, at in zip(bodies, places, strict=True)]
    mass = sum_of(masses)
    centre = sum_of([m * at.p for m, at in zip(masses, places, strict=True)]) / mass
    about = centre if about is None else about.astype(q.dtype)
    arms = [at.p - about for at in places]

    def momentum(v: Velocities) -> tuple[Array, Twist]:
        moved = [twists(v)[name] for name in names]
        p = [m * x.velocity for m, x in zip(masses, moved, strict=True)]
        turning = [jnp.dot(J, x.omega) for J, x in zip(own, moved, strict=True)]
        L = [a + moment(arm, b) for a, arm, b in zip(turning, arms, p, strict=True)]
        return jnp.concatenate([jnp.atleast_1d(sum_of(L)), sum_of(p)]), Twist(sum_of(L), sum_of(p))

    matrix, moved = jax.jacfwd(lambda v: momentum(v)[0])(v), momentum(v)[1]
    energies = [b.kinetic_energy(placements[b.name], twists(v)[b.name]) for b in bodies]
    return MassProperties(
        mass=mass,
        centre=centre,
        velocity=moved.velocity / mass,
        jacobian=matrix[-centre.size :] / mass,
        momentum=moved.velocity,
        angular_momentum=moved.omega,
        momentum_matrix=matrix,
        inertia=sum_of(
            [J + m * _compute_steiner_term(arm) for J, m, arm in zip(own, masses, arms, strict=True)]
        ),
        mass_matrix=system.mass_matrix(t, q),
        kinetic_energy=sum_of(energies),
    )


def mass_properties(
    system: AbstractSystem | Problem,
    t: Time | float | None = None,
    q: Numbers | None = None,
    v: Numbers | None = None,
    *,
    bodies: Iterable[str] | None = None,
    about: Numbers | None = None,
) -> MassProperties:
    """Total mass, centre of mass, momentum and inertia of a mechanism, or of some of its bodies.

    **Arguments:**

    - `system`: a mechanism, or a `Problem` of one, which brings its state.
    - `t`: time [s].
    - `q`: generalized coordinates (n_q,); by default the reference posture.
    - `v`: generalized velocities (n,); by default zero.
    - `bodies`: the names of those that count; by default all.
    - `about`: the point that angular momentum and inertia are about [m] (3,) or (2,); by default the centre of mass.

    **Returns:** `MassProperties`.

    **Raises:** `InputError` for a system that is no mechanism, a name that is not known, and wrong shapes.
    """
    own, t, q, v = state_of(system, t, q, v)
    mechanism = require_mechanism(own)
    every = [body.name for body in mechanism.bodies]
    names = select_names("body", every if bodies is None else bodies, every)
    point = None if about is None else check_array("about", about, (mechanism.mechanism.dimension,))
    return _mass_properties(mechanism, names, point, t, q, v)
