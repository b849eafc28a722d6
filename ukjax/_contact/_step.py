"""One time step with contacts, in parts; see `_stepping` for the equations."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._motion._model import Model
from ._moreau import FreeStep
from ._rows import Coefficients, ContactLayout, kinematics, with_push


class PreparedStep(NamedTuple):
    """A step before its impulses are known; matrices as vectors, which a batch of scalar programs passes on as they are.

    - `middle`: the positions at its middle, where all is computed (n_q,).
    - `free`: velocities at its end without impulses (n,).
    - `u`: contact velocities there, with what restitution adds (m,).
    - `J`, `W`: rows of the contacts (m n,), and the inverse inertia they feel (n n,).
    - `active`: 1 where contacts take part (n_contacts,).
    - `fast`: 1 where contacts close faster than forces move them within a step.
    """

    middle: Array
    free: Array
    u: Array
    J: Array
    W: Array
    active: Array
    fast: Array


def _take_normal_entries(layout: ContactLayout, x: Array) -> Array:
    """What rows have on the normal ones, by contact (n,); zero for dry friction."""
    return jnp.zeros(len(layout.contacts), x.dtype).at[layout.owner[layout.normals]].set(x[layout.normals])


def _add_implicit_inertia(model: Model, t: Array, q: Array, v: Array, h: Array) -> tuple[Model, Array]:
    """The model with the inertia that springs and dampers of coordinates add when they are taken implicitly, and c."""
    system: Any = model.system
    if system.added is None:
        return model, jnp.zeros_like(v)
    along = lambda d: jax.jvp(
        lambda q: system.coordinate_force(t, q, v), (q,), (system.kinematics(t, q, d),)
    )[1]
    c = -jnp.diagonal(jax.jacfwd(lambda v: system.coordinate_force(t, q, v))(v))
    k = -jnp.diagonal(jax.jacfwd(along)(jnp.zeros_like(v)))
    added = jnp.maximum(0.5 * h * c + 0.25 * h * h * k, 0)
    return dataclasses.replace(model, system=dataclasses.replace(system, added=added), numbers=None), c


@dataclasses.dataclass(frozen=True)
class MidpointStage:
    """The part of a step before its impulses.

    - `layout`: of the contacts.
    """

    layout: ContactLayout

    def __call__(self, model: Model, q: Array, v: Array, t: Array, h: Array, *given: Array) -> PreparedStep:
        """**Arguments:** the state, its time, the step, and the coefficients of contacts."""
        layout, coefficients, system = self.layout, Coefficients(*given), model.system
        middle, q_middle = t + 0.5 * h, q + 0.5 * h * system.kinematics(t, q, v)
        model, damping = _add_implicit_inertia(model, middle, q_middle, v, h)
        acceleration = lambda v, push: with_push(model, push).acceleration(middle, q_middle, v)
        v_middle = v + 0.5 * h * acceleration(v, jnp.zeros_like(v))
        pushed, push = functools.partial(acceleration, v_middle), damping * (v_middle - v)
        a, unit = pushed(push), jnp.eye(v.size, dtype=v.dtype)
        W = jax.vmap(lambda d: jax.jvp(pushed, (push,), (d,))[1])(unit)
        of = lambda t, q, v: kinematics(system.system, t, q, v)  # pyright: ignore[reportAttributeAccessIssue]
        velocities = lambda t, q, v: of(t, q, v).u
        J = jax.jacfwd(velocities, argnums=2)(middle, q_middle, v_middle)
        q_rate, free = system.kinematics(middle, q_middle, v_middle), v + h * a
        state, change = (middle, q_middle, v_middle), (jnp.ones_like(t), q_rate, a)
        rate = jax.jvp(velocities, state, change)[1]
        before, u = velocities(middle, q_middle, v), velocities(middle, q_middle, free)
        near = of(*state).gap + 0.125 * h * h * _take_normal_entries(layout, rate) <= 0
        fast = layout.is_normal & (before < -h * jnp.abs(rate))
        u = u + jnp.where(fast, coefficients.restitution[layout.owner] * before, 0)
        number, active = lambda x: x.astype(q.dtype), jnp.asarray(~layout.has_gap) | near
        flat = lambda x: x.reshape(-1)
        struck = _take_normal_entries(layout, number(fast))
        return PreparedStep(q_middle, free, u, flat(J), flat(0.5 * (W + W.T)), number(active), struck)


def free_step(model: Model) -> Callable[..., FreeStep]:
    """A step without impulses, of t, q, v and its length."""

    def step(t: Array, q: Array, v: Array, h: Array) -> FreeStep:
        middle, q_middle = t + 0.5 * h, q + 0.5 * h * model.system.kinematics(t, q, v)
        stiff, damping = _add_implicit_inertia(model, middle, q_middle, v, h)
        acceleration = lambda v, push: with_push(stiff, push).acceleration(middle, q_middle, v)
        v_middle = v + 0.5 * h * acceleration(v, jnp.zeros_like(v))
        pushed, push = functools.partial(acceleration, v_middle), damping * (v_middle - v)
        a, respond = pushed(push), lambda d: jax.jvp(pushed, (push,), (d,))[1]
        return FreeStep(middle, q_middle, v_middle, a, v + h * a, respond)

    return step


def arrival(model: Model) -> Callable[..., tuple[tuple[Array, Array], Array]]:
    """The end of a step, on the bilateral rows, and whether it is off them, as `ContactStep` takes it."""

    def arrive(
        q: Array, both: Array, v: Array, d: Array, t: Array, h: Array, free: FreeStep
    ) -> tuple[tuple[Array, Array], Array]:
        end = EndPositions()(model, q, both, t, h, free.q, d)
        y = end.q, v
        return model.kept(end.t, y) if model.system.constraints else (y, jnp.zeros((), bool))

    return arrive


class Arrived(NamedTuple):
    """The end of a step: positions (n_q,) and time."""

    q: Array
    t: Array


@dataclasses.dataclass(frozen=True)
class EndPositions:
    """Positions at the end of a step, moved by displacements d along velocities: q + h/2 N (v + v+) + N d."""

    def __call__(
        self, model: Model, q: Array, both: Array, t: Array, h: Array, middle: Array, d: Array
    ) -> Arrived:
        """**Arguments:** positions at its beginning, v + v+, time, step, positions at its middle, and d."""
        of = lambda v: model.system.kinematics(t + 0.5 * h, middle, v)
        return Arrived(q + 0.5 * h * of(both) + jax.jvp(of, (both,), (d,))[1], t + h)
