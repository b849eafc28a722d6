"""One time step with contacts, in parts; see `_stepping` for the equations."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._formula._contact_newton import ContactData
from .._motion._model import Model
from ._rows import Coefficients, Contact, Layout, contact_at, kinematics, pushed_by


class Prepared(NamedTuple):
    """A step before its impulses are known.

    - `data`: the complementarity problem.
    - `free`: the velocities without impulses (n_v,).
    - `response`: W J^T (n_v, m).
    - `q`: the positions, without what the velocities after the step add (n_q,).
    - `rates`: N of q' = N v (n_q, n_v).
    - `normal`: J_n W J_n^T of the contacts with a gap (k, k).
    - `active`: 1 where contacts take part (n,).
    - `fast`: 1 where contacts close faster than forces move them within a step (n,).
    """

    data: ContactData
    free: Array
    response: Array
    q: Array
    rates: Array
    normal: Array
    active: Array
    fast: Array


def _of_contacts(layout: Layout, x: Array) -> Array:
    """What rows have on the normal ones, by contact (n,); zero for dry friction."""
    return jnp.zeros(len(layout.contacts), x.dtype).at[layout.owner[layout.normals]].set(x[layout.normals])


def _problem(
    layout: Layout, coefficients: Coefficients, at: Contact, u: Array, active: Array, h: Array
) -> ContactData:
    """The complementarity problem of a step; contacts that take no part are kept apart."""
    on = active[layout.owner]
    size = jnp.trace(at.G) / max(u.size, 1)
    apart = jnp.where(on, 0, jnp.where(size > 0, size, 1))
    G = jnp.where(on[:, None] & on[None], at.G, 0) + jnp.diag(apart)
    return ContactData(G, jnp.where(on, u, 0), coefficients.friction, coefficients.limit * h)


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
        data = _problem(layout, coefficients, at, u + restored, active, h)
        rates = jax.jacfwd(lambda v: system.kinematics(middle, q_middle, v))(v)
        number = lambda x: x.astype(q.dtype)
        normal, struck = at.G[layout.normals][:, layout.normals], _of_contacts(layout, number(fast))
        half = q + 0.5 * h * (rates @ v)
        return Prepared(data, free, at.response, half, rates, normal, number(active), struck)


@dataclasses.dataclass(frozen=True)
class Gaps:
    """The gaps of contacts that have one (k,).

    - `layout`: of the contacts.
    """

    layout: Layout

    def __call__(self, model: Model, q: Array, v: Array, t: Array) -> Array:
        """**Arguments:** the state, of which velocities do not matter."""
        return kinematics(model.system.system, t, q, v).gap[self.layout.owner[self.layout.normals]]  # pyright: ignore
