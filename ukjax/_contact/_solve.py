"""Contacts with Coulomb friction at one instant: the function users call, its checks and what it returns."""

import functools
from collections.abc import Callable
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._compiler._structured._scalarize import scalarize
from .._formula._contact_list import (
    ContactList,
    Room,
    copy_entries,
    empty_list,
    entry,
    fill_entries,
    loop,
    put,
)
from .._formula._contact_operator import KnownDelassus, without_rest
from .._formula._contact_problem import (
    ContactData,
    ContactSolution,
    Layout,
    flatten_problem,
    rows_in,
    rows_of,
)
from .._formula._contact_solver import IMPLICIT, linearize_solution, solve_known
from .._misc._arguments import fails, real_array, require_finite, require_not_negative
from .._misc._blank import blank
from .._misc._errors import InputError
from .._misc._types import is_traced
from .._pseudoinverse._kernels import dot
from ._modes import ambiguous_impulses

# --- A contact problem whose Delassus operator is known, solved over a list of its contacts


def _make_list(
    layout: Layout, given: Array, guess: Array, *, all_rows: bool
) -> tuple[ContactList, KnownDelassus, Room, Array]:
    """The list of all contacts, G of its rows, and the place of each row in the problem. Tangential rows of contacts
    without friction are left out, unless `all_rows` are wanted.
    """
    n, m, dtype = len(layout), rows_in(layout), given.dtype
    room = Room(n, m, max(tangents for _, tangents in layout), 0, 0)
    sizes = [int(normal) + tangents for normal, tangents in layout]
    tables = np.cumsum([0, *sizes])[:-1], [int(normal) for normal, _ in layout], [t for _, t in layout]
    starts, normals, tangents = (jnp.asarray(np.array(x)) for x in tables)
    u, mu, c = (lambda i, first=first: entry(given, first + i) for first in (m * m, m * m + m, m * m + m + n))

    def add(k: Array, so_far: tuple) -> tuple:
        contacts, places = so_far
        row, rubs = contacts.rows, all_rows | (mu(k) > 0) | (c(k) > 0)
        count = jnp.where(rubs, entry(tangents, k), 0) + entry(normals, k)
        first = entry(starts, k)

        def own(a: Array, x: tuple) -> tuple:
            return (
                put(x[0], row + a, u(first + a)),
                put(x[1], row + a, entry(guess, first + a)),
                put(x[2], row + a, first + a),
            )

        of_u, of_p, places = loop(count, own, (contacts.u, contacts.p, places))
        contacts = contacts._replace(
            contact=put(contacts.contact, k, k),
            row=put(contacts.row, k, row),
            normals=put(contacts.normals, k, entry(normals, k)),
            tangents=put(contacts.tangents, k, count - entry(normals, k)),
            friction=put(contacts.friction, k, mu(k)),
            limit=put(contacts.limit, k, c(k)),
            u=of_u,
            p=of_p,
            number=k + 1,
            rows=row + count,
        )
        return contacts, places

    contacts, places = loop(n, add, (empty_list(room, dtype), blank(room.stride, starts.dtype)))
    rows, width = contacts.rows, contacts.rows + 1

    def of_row(i: Array, G: Array) -> Array:
        first = entry(places, i) * m
        return loop(rows, lambda j, G: put(G, i * width + j, entry(given, first + entry(places, j))), G)

    G = without_rest(loop(rows, of_row, blank(room.stride**2, dtype)), room, rows)
    whole = lambda value: fill_entries(blank(room.stride, rows.dtype), 0, value, rows)
    return contacts, KnownDelassus(G, width, whole(0), whole(rows), rows), room, places


@functools.cache
def _solver(layout: Layout, tolerance: float) -> Callable[[Array, Array], tuple[Array, ...]]:
    """What gives impulses on all rows, residual, steps and modes of a problem, as one program of scalars."""

    def solve(given: Array, guess: Array) -> tuple[Array, ...]:
        contacts, of, room, places = _make_list(layout, given, guess, all_rows=False)
        n, dtype, found = len(layout), given.dtype, solve_known(contacts, room, of, tolerance)
        copy = lambda i, p: put(p, entry(places, i), entry(found.p, i))
        p = loop(contacts.rows, copy, jnp.zeros(rows_in(layout), dtype))
        modes = (loop(n, lambda k, y, x=x: put(y, k, entry(x, k)), jnp.zeros(n, dtype)) for x in found[2:4])
        return p, found.residual, found.steps, *modes

    return scalarize(solve)


@functools.cache
def _differentiator(layout: Layout) -> Callable[[Array, Array], Array]:
    """What gives the impulses that solve a problem their derivative by it, as one program of scalars."""

    def follow(given: Array, p: Array) -> Array:
        contacts, of, room, _ = _make_list(layout, given, p, all_rows=True)
        u = of.apply(copy_entries(blank(room.stride, p.dtype), contacts.u, contacts.rows), contacts.p)
        return linearize_solution(contacts, room, of, u)(contacts.p, u)[:-1]

    return scalarize(follow)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def _solve(given: Array, guess: Array, layout: Layout) -> tuple[Array, ...]:
    return _solver(layout, tolerance_of(given.dtype))(given, guess)


@_solve.defjvp
def _(layout: Layout, primals: tuple, tangents: tuple) -> tuple:
    """Of modes that stay as they are."""
    (given, guess), (change, _) = primals, tangents
    p, *others = _solve(given, guess, layout)
    dp = jax.jvp(lambda given: _differentiator(layout)(given, p), (given,), (change,))[1]
    return (p, *others), (dp, *map(jnp.zeros_like, others))


def _find_border_contacts(layout: Layout, data: ContactData, p: Array) -> Array:
    """Which contacts are on the border of two modes, so far as a solution within the tolerance tells (n,)."""
    rows, mean = rows_of(layout, p.dtype), jnp.trace(data.G) / p.size
    mean = jnp.where(mean > 0, mean, 1)
    y = p - (dot(data.G, p) + data.u) / mean
    pressed, largest = dot(rows.normal, y), lambda x: jnp.max(jnp.abs(x), initial=0)
    least = 10 * tolerance_of(p.dtype) * (largest(data.u) / mean + largest(p))
    opens = rows.has_normal & (jnp.abs(pressed) <= least)
    bound = data.mu * jnp.maximum(pressed, 0) + data.c
    rubs = ((pressed > 0) | ~rows.has_normal) & (bound > least) & jnp.any(rows.tangent > 0, axis=1)
    slips = rubs & (jnp.abs(jnp.sqrt(dot(rows.tangent, y * y)) - bound) <= least)
    # Where closed contacts depend on each other, u' may change so that there is none: p changes as far as e lets it.
    change = jnp.asarray(np.cos(np.arange(p.size) ** 2), p.dtype)  # along no dependency
    of_velocity = lambda u: _differentiator(layout)(flatten_problem(data._replace(u=u)), p)
    by_velocity = jnp.abs(jax.jvp(of_velocity, (data.u,), (change,))[1]) * mean
    large = (by_velocity > 0.1 / IMPLICIT).astype(p.dtype)
    return opens | slips | (dot(rows.normal + rows.tangent, large) > 0)


# --- The function that users call


@final
class Contacts(eqx.Module):
    """What `solve_contacts` returns.

    - `impulses`: p (m,) [N s], or forces [N].
    - `velocities`: u = G p + u' (m,) [m/s], or accelerations.
    - `residual`: the largest of |min(p_n, u_n)| and of the violations of cone and maximum dissipation, scaled as the
      problem is solved: u' to a largest entry of 1, the mean of G's diagonal to 1; dissipation over 1 + the largest p.
    - `steps`: Newton steps.
    - `closed`, `sliding`: by contact (n,); what is closed and does not slide sticks.
    - `ambiguous`: of which contacts other impulses obey the laws as well, with other velocities (n,): dependent ones that
      slide in different directions, and sliding ones that may as well be open (Painleve).
    - `border`: which contacts are on the border of two modes, as far as rounding tells (n,): about to open or to close,
      at the limit of friction without slip, or closed and dependent. There derivatives are those of one side, or of
      changes that keep contacts dependent; by others they are as large as 1e6 over G.
    """

    impulses: Float[Array, " m"]
    velocities: Float[Array, " m"]
    residual: Float[Array, ""]
    steps: Int[Array, ""]
    closed: Bool[Array, " n"]
    sliding: Bool[Array, " n"]
    ambiguous: Bool[Array, " n"]
    border: Bool[Array, " n"]

    def __repr__(self) -> str:
        if is_traced(self.residual) or np.ndim(self.residual):
            return f"Contacts: impulses {np.shape(self.impulses)}, closed {np.shape(self.closed)}"
        count = lambda x: int(np.sum(np.asarray(x)))
        closed, sliding, several = map(count, (self.closed, self.sliding, self.ambiguous))
        doubt = f", other motions of {several} obey the laws as well" if several else ""
        return (
            f"Contacts: {closed} of {self.closed.size} closed, of which {sliding} slide; residual "
            f"{float(self.residual):.1e} after {int(self.steps)} Newton steps{doubt}; impulses "
            f"{np.array2string(np.asarray(self.impulses), precision=6, threshold=24)}"
        )


def solve_contacts(
    delassus: Any,
    velocity: Any,
    friction: Any,
    *,
    limit: Any = 0.0,
    tangents: int | tuple[int, ...] | None = None,
    normals: bool | tuple[bool, ...] = True,
) -> Contacts:
    """Impulses and velocities of contacts with Coulomb friction (Signorini; Moreau 1988; De Saxce and Feng 1991).

        u = G p + u',   0 <= p_n  perp  u_n >= 0,   |p_t| <= mu p_n + c,   u_t != 0  =>  p_t = -(mu p_n + c) u_t / |u_t|

    The cone is the exact one, and a sliding contact does not lift, as it does in convex models of friction. Where
    contacts are dependent, u and J^T p are the same for all solutions as long as they do not slide in different
    directions; p is nearly the least of them. A problem can have several solutions: one is found, near impulses of
    zero, and `ambiguous` tells. Where there is none, `residual` stays large.

    Derivatives are those of the solution with its modes (open, sticking, sliding) kept, by the implicit function theorem.
    On the border of two modes there is none, and `border` tells; nor for changes of dependent contacts that would part
    them.

    **Arguments:**

    - `delassus`: G = J M^-1 J^T, symmetric, positive semidefinite (m, m) [1/kg]. The rows of a contact follow each
      other, the normal one first.
    - `velocity`: u', without impulses (m,) [m/s].
    - `friction`: mu of each contact (n,), or one for all.
    - `limit`: c of each contact [N s], or one for all: what friction resists without being pressed, of dry friction in a
      joint.
    - `tangents`: how many tangential rows each contact has: 0, 1 in the plane, 2 in space; by default all have as many.
    - `normals`: whether each contact has a normal row; False for dry friction in a joint.

    **Returns:** `Contacts`.

    **Raises:** `InputError` for wrong shapes, values that are not finite, negative coefficients, and a G that is not
    symmetric.
    """
    data, layout = _check_problem(delassus, velocity, friction, limit, tangents, normals)
    return _contacts(data, layout)


@functools.partial(jax.jit, static_argnums=1)
def _contacts(data: ContactData, layout: Layout) -> Contacts:
    """As one program: outside of jit its dozens of operations would be compiled and called one by one."""
    found = solution_of(flatten_problem(data), layout)
    after = dot(data.G, found.p) + data.u
    several = ambiguous_impulses(layout, data._replace(u=after), found)
    border = jnp.zeros(0, bool)
    if data.u.size:
        border = _find_border_contacts(layout, *jax.lax.stop_gradient((data, found.p)))
    return Contacts(found.p, after, *found[1:], several > 0, border)


def solution_of(given: Array, layout: Layout, guess: Array | None = None) -> ContactSolution:
    """The solution of a problem; for use inside `jit`."""
    dtype, guess = given.dtype, jnp.zeros(rows_in(layout), given.dtype) if guess is None else guess
    if not guess.size:
        none, zero = jnp.zeros(len(layout), bool), jnp.zeros((), dtype)
        return ContactSolution(guess, zero, zero.astype(jnp.int32), none, none)
    p, residual, steps, *modes = _solve(given, jax.lax.stop_gradient(guess), layout)
    return ContactSolution(p, residual, steps.astype(jnp.int32), *(x > 0 for x in modes))


def tolerance_of(dtype: Any) -> float:
    """Of the residual of a scaled problem: some hundred roundings in float64, so that it is met; fewer in float32, whose
    steps are that much coarser."""
    return float(5e3 if dtype == jnp.float64 else 1e2) * float(jnp.finfo(dtype).eps)


def is_symmetric(G: np.ndarray) -> bool:
    """Whether a matrix is its transpose but for rounding, also that of float32."""
    return np.allclose(G, G.T, rtol=1e-5, atol=1e-6 * np.abs(G).max(initial=0))


def _check_problem(
    delassus: Any, velocity: Any, friction: Any, limit: Any, tangents: Any, normals: Any
) -> tuple:
    G, u = real_array("delassus", delassus), real_array("velocity", velocity)
    if u.ndim != 1 or G.shape != (u.size, u.size):
        raise InputError(f"delassus must be (m, m) for velocity (m,), got {G.shape} and {u.shape}.")
    if fails(is_symmetric, delassus):
        raise InputError("delassus must be symmetric: it is J M^-1 J^T.")
    mu, c = real_array("friction", friction), real_array("limit", limit)
    for name, value in (("delassus", delassus), ("velocity", velocity)):
        require_finite(name, value)
    for name, value in (("friction", friction), ("limit", limit)):
        require_not_negative(name, value)
    given = [len(x) for x in (tangents, normals) if isinstance(x, tuple)] + [
        x.size for x in (mu, c) if x.ndim
    ]
    if not given and tangents is None:
        raise InputError("say how many `tangents` a contact has, or give `friction` for each contact.")
    n = given[0] if given else u.size // max(tangents + bool(normals), 1)
    each_normal = normals if isinstance(normals, tuple) else (bool(normals),) * n
    if tangents is None:
        tangents = (u.size - sum(each_normal)) // max(n, 1)
    each = tangents if isinstance(tangents, tuple) else (tangents,) * n
    fit = all(x.shape in ((), (n,)) for x in (mu, c)) and len(each) == len(each_normal) == n
    if not fit or sum(each) + sum(each_normal) != u.size:
        raise InputError(
            f"the {u.size} rows must be those of all contacts: friction is {mu.shape}, limit {c.shape}, normals are "
            f"{each_normal}, tangents {each}."
        )
    mu, c = (jnp.broadcast_to(x, (n,)).astype(u.dtype) for x in (mu, c))
    return ContactData(G, u, mu, c), tuple(zip(each_normal, each, strict=True))
