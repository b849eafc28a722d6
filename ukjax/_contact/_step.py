"""One time step with contacts, in parts; see `_stepping` for the equations."""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from .._formula._contact_newton import ContactData, flattened
from .._motion._model import Model
from ._penetration import pushed
from ._rows import Coefficients, Contact, Layout, contact_at, kinematics, pushed_by


class Prepared(NamedTuple):
    """A step before its impulses are known; matrices as vectors, which a batch of scalar programs passes on as they are.

    - `problem`: the complementarity problem.
    - `free`: velocities, then positions at its end, without impulses (n_v + n_q,).
    - `effect`: what each impulse adds to velocities, W J^T, then N W J^T by which it moves positions
      ((n_v + n_q) m,).
    - `normal`: J_n W J_n^T of the contacts with a gap (k k,).
    - `active`: 1 where contacts take part (n,).
    - `fast`: 1 where contacts close faster than forces move them within a step (n,).
    """

    problem: Array
    free: Array
    effect: Array
    normal: Array
    active: Array
    fast: Array


def _of_contacts(layout: Layout, x: Array) -> Array:
    """What rows have on the normal ones, by contact (n,); zero for dry friction."""
    return jnp.zeros(len(layout.contacts), x.dtype).at[layout.owner[layout.normals]].set(x[layout.normals])


def _problem(
    layout: Layout, coefficients: Coefficients, at: Contact, u: Array, active: Array, h: Array
) -> Array:
    """The complementarity problem of a step, flattened; contacts that take no part are kept apart."""
    on = active[layout.owner]
    size = jnp.trace(at.G) / max(u.size, 1)
    apart = jnp.where(on, 0, jnp.where(size > 0, size, 1))
    G = jnp.where(on[:, None] & on[None], at.G, 0) + jnp.diag(apart)
    return flattened(ContactData(G, jnp.where(on, u, 0), coefficients.friction, coefficients.limit * h))


@dataclasses.dataclass(frozen=True)
class Prepare:
    """The part of a step before its impulses.

    - `layout`: of the contacts.
    """

    layout: Layout

    def __call__(self, model: Model, q: Array, v: Array, t: Array, h: Array, *given: Array) -> Prepared:
        """**Arguments:** the state, its time, the step, and the coefficients of contacts."""
        layout, coefficients, system = self.layout, Coefficients(*given), model.system
        middle, q_middle = t + 0.5 * h, q + 0.5 * h * system.kinematics(t, q, v)
        v_middle = v + 0.5 * h * pushed_by(model, jnp.zeros_like(v)).acceleration(middle, q_middle, v)
        at = contact_at(model, middle, q_middle, v_middle)
        free = v + h * at.a
        before, u = at.u + at.J @ (v - v_middle), at.u + at.J @ (free - v_middle)
        active = jnp.asarray(~layout.has_gap) | (at.gap + 0.125 * h * h * _of_contacts(layout, at.rate) <= 0)
        fast = layout.is_normal & (before < -h * jnp.abs(at.rate))
        restored = jnp.where(fast, coefficients.restitution[layout.owner] * before, 0)
        problem = _problem(layout, coefficients, at, u + restored, active, h)
        end = q + 0.5 * h * system.kinematics(middle, q_middle, v + free)
        number = lambda x: x.astype(q.dtype)
        normal, struck = (
            at.G[layout.normals][:, layout.normals].reshape(-1),
            _of_contacts(layout, number(fast)),
        )
        effect = jnp.concatenate([at.response, at.moved]).reshape(-1)
        return Prepared(problem, jnp.concatenate([free, end]), effect, normal, number(active), struck)


@dataclasses.dataclass(frozen=True)
class Apply:
    """The part of a step that its impulses make: velocities, positions, and how positions are pushed by the contacts that
    have a gap (k n_q,).

    - `layout`: of the contacts.
    - `velocities`: how many there are.
    """

    layout: Layout
    velocities: int

    def __call__(self, free: Array, effect: Array, p: Array, h: Array) -> tuple[Array, Array, Array]:
        """**Arguments:** of `Prepared`, and the impulses; the length of the step."""
        on_v, on_q = jnp.split(effect.reshape(-1, p.size), [self.velocities])
        v, q = jnp.split(free, [self.velocities])
        return v + on_v @ p, q + 0.5 * h * (on_q @ p), on_q[:, self.layout.normals].T.reshape(-1)


@dataclasses.dataclass(frozen=True)
class Gaps:
    """The gaps of contacts that have one (k,).

    - `layout`: of the contacts.
    """

    layout: Layout

    def __call__(self, model: Model, q: Array, v: Array, t: Array) -> Array:
        """**Arguments:** the state, of which velocities do not matter."""
        return kinematics(model.system.system, t, q, v).gap[self.layout.owner[self.layout.normals]]  # pyright: ignore


@dataclasses.dataclass(frozen=True)
class Nearer:
    """Without bilateral rows, one step of the search for the impulses of positions: these, and the gaps there.

    - `layout`: of the contacts.
    """

    layout: Layout

    def __call__(
        self,
        model: Model,
        q: Array,
        v: Array,
        t: Array,
        pushes: Array,
        normal: Array,
        pi: Array,
        gap: Array,
    ) -> tuple[Array, Array]:
        """**Arguments:** as of `Gaps`; of `Apply` and `Prepared`; where the search is."""
        pi = pushed(normal.reshape(pi.size, pi.size), pi, gap)
        return pi, Gaps(self.layout)(model, q + pi @ pushes.reshape(pi.size, q.size), v, t)
