"""Impulses on contacts given by their rows, and what they change, by operations on arrays that JAX differentiates."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._formula._contact_newton import (
    ContactData,
    ContactSolution,
    Layout,
    apart,
    differentiate_solution,
    flatten_problem,
)
from .._pseudoinverse._kernels import dot
from ._newton_list import solve_by_list
from ._solve import tolerance_of


def build_contact_data(J: Array, W: Array, u: Array, mu: Array, c: Array) -> ContactData:
    """The problem of contacts with rows J (m, v) of what has the inverse inertia W (v, v)."""
    G = dot(dot(J, W), J.T)
    return ContactData(0.5 * (G + G.T), u, mu, c)


class ImpulseRows(NamedTuple):
    """Rows of contacts, and the inertia they feel, both flattened.

    - `J`: the rows (m v,).
    - `W`: the inverse inertia (v v,).
    """

    J: Array
    W: Array


class Struck(NamedTuple):
    """What contacts do to velocities.

    - `found`: impulses and modes.
    - `change`: W J^T p (v,).
    """

    found: ContactSolution
    change: Array


def solve_impulses(
    layout: Layout,
    rows: ImpulseRows,
    v: Array,
    u: Array,
    laws: tuple[Array, Array],
    active: Array,
    guess: Array,
) -> Struck:
    """The impulses p with u = J (v + W J^T p) + u', and what they change; differentiable, with the modes kept."""
    guess, active = jax.lax.stop_gradient((guess, active))
    *found, change = _solve_impulses(*rows, v, u, *laws, active, guess, layout)
    return Struck(ContactSolution(*found), change)


@functools.partial(jax.custom_jvp, nondiff_argnums=(8,))
def _solve_impulses(
    J: Array, W: Array, v: Array, u: Array, mu: Array, c: Array, active: Array, guess: Array, layout: Layout
) -> tuple:
    J, W = J.reshape(u.size, v.size), W.reshape(v.size, v.size)
    data = apart(layout, build_contact_data(J, W, u + dot(J, v), mu, c), active)
    p, residual, steps, *modes = solve_by_list(layout, tolerance_of(u.dtype), flatten_problem(data), guess)
    return p, residual, steps, *(x * active for x in modes), dot(W, dot(p, J))


@_solve_impulses.defjvp
def _(layout: Layout, primals: tuple, tangents: tuple) -> tuple:
    *given, active, guess = primals
    p, *others, change = _solve_impulses(*given, active, guess, layout)

    def problem(J: Array, W: Array, v: Array, u: Array, mu: Array, c: Array) -> tuple:
        J, W = J.reshape(u.size, v.size), W.reshape(v.size, v.size)
        return apart(layout, build_contact_data(J, W, u + dot(J, v), mu, c), active), dot(W, dot(p, J))

    (data, _), (d, moved) = jax.jvp(problem, tuple(given), tuple(tangents[:-2]))
    dp = differentiate_solution(layout, data, d, p)
    J, W = given[0].reshape(p.size, -1), given[1].reshape(change.size, -1)
    return (p, *others, change), (dp, *map(jnp.zeros_like, others), moved + dot(W, dot(dp, J)))
