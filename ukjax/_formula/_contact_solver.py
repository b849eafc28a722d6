"""The problem of contacts at one instant, of a list of contacts in memory, solved by Newton's method.

With rows J of the contacts, the inverse inertia W they feel and contact velocities u' without impulses, find impulses p
and velocities u = G p + u', G = J W J^T, that obey Signorini's and Coulomb's laws, p = P(p - r u) in `_contact_problem`.

Newton's method is that for G + e 1, where e pulls towards an earlier p (proximal point): once that error is small beside
the whole one, e pulls towards where p is, and shrinks; where steps do not converge, it grows. So dependent contacts, such
as the fourth leg of a table, need no other treatment. A step eliminates the rows of those contacts alone whose impulses
are not known to be zero.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from .._misc._blank import blank
from .._misc._derivatives import freeze
from .._misc._types import choose_by_precision
from ._contact_list import ContactList, Room, add_scaled, copy_entries, entry, fill_entries, loop, put
from ._contact_operator import DelassusRows, KnownDelassus

# Of e; where steps did not converge it shrinks by less for a while, as they would fail again. Of 50 large islands in a
# pile that halves the work.
SHRINK, LITTLE, GROW = 0.03, 0.3, 10.0
# Of e, beside the mean of G's diagonal. From 1e-4 on a falling humanoid takes a fifth fewer steps, but solutions just
# within tolerance are less exact: derivatives through impacts of 1e-6 m/s, where rocking ends, were off by 1e-4.
FIRST, MOST = 1e-2, 1e2
# Of e in float64 and float32. Where forces of dependent contacts move far before friction turns round, they move the
# farther in a step the smaller e is: of 80 islands of five and more contacts in a pile four took more than 120 steps with
# 1e-7, one with 1e-10, and the mean of all fell from 12 to 7.
LEAST = (1e-10, 1e-7)
IMPLICIT = 1e-5  # of e in derivatives
NEARER = 0.3  # what one e is to leave of the error: to solve for it exactly would be in vain
TRIES = 8  # steps for one e; where they converge, one to four are enough
# Of the residual in float64 and float32, once steps for some e did not converge: what is left is of contacts that slip by
# no more, and friction turns round with each step. Of 70 islands of boxes and cylinders 50 took more than 80 steps to
# rounding, 30 to 1e-10, five to this.
STALLED = (1e-9, 1e-4)
STEPS = 400.0  # of 2,400 random problems of up to 8 contacts none took more than 170
ROUNDING = 30.0  # of G p, beside its size, in units of the last place


class ImpulseSolution(NamedTuple):
    """Impulses by row, what they change velocities by, modes by contact of the list, residual, and Newton steps."""

    p: Array
    change: Array
    closed: Array
    sliding: Array
    residual: Array
    steps: Array


class _Rows(NamedTuple):
    """The rows of a contact: their places, where they are not there the last place of all, and which are there."""

    normal: Array
    has_normal: Array
    tangents: list[tuple[Array, Array]]


def _rows_of(contacts: ContactList, k: Array, room: Room) -> _Rows:
    row, normals, tangents = (entry(x, k) for x in (contacts.row, contacts.normals, contacts.tangents))
    there = [a < tangents for a in range(room.tangents)]
    first = row + normals
    places = [(jnp.where(on, first + a, room.rows), on) for a, on in enumerate(there)]
    return _Rows(jnp.where(normals > 0, row, room.rows), normals > 0, places)


class _ConePoint(NamedTuple):
    """P(y) of one contact at y = p - r (u + e (p - centre)): p - P(y), and what its derivative needs."""

    # `normal`, `tangent`: of normal and tangential rows p - P(y).
    normal: Array
    tangent: list[Array]
    # `r_normal`, `r_tangent`: the sizes r.
    r_normal: Array
    r_tangent: Array
    # `left`, `direction`: of tangential rows how much is left, and where it points if it slides.
    left: Array
    direction: list[Array]
    # `closed`, `slides`: the mode.
    closed: Array
    slides: Array


def _cut(
    rows: _Rows,
    laws: tuple[Array, Array],
    diagonal: Array,
    e: Array,
    place: tuple[Array, Array],
    centre: Array,
) -> _ConePoint:
    (p, u), (mu, c), s = place, laws, rows.normal
    at = lambda i, r: entry(p, i) - r * (entry(u, i) + e * (entry(p, i) - entry(centre, i)))
    r_normal = 1 / jnp.abs(entry(diagonal, s) + e)
    pressed = jnp.maximum(jnp.where(rows.has_normal, at(s, r_normal), 0), 0)
    closed = (pressed > 0) | ~rows.has_normal
    normal = jnp.where(rows.has_normal, entry(p, s) - pressed, 0)
    zero = jnp.zeros_like(e)
    total = sum((jnp.where(on, entry(diagonal, i) + e, 0) for i, on in rows.tangents), zero)
    number = sum((on.astype(e.dtype) for _, on in rows.tangents), zero)
    r_tangent = number / jnp.where(total == 0, 1, total)
    y = [jnp.where(on, at(i, r_tangent), 0) for i, on in rows.tangents]
    square, bound = sum((x * x for x in y), zero), mu * pressed + c
    slides = (number > 0) & ((square > bound * bound) | (bound <= 0))
    length = jnp.sqrt(jnp.where(square > 0, square, 1))
    left = jnp.where(slides, bound / length, 1)
    direction = [jnp.where(slides, x / length, 0) for x in y]
    tangent = [jnp.where(on, entry(p, i) - left * x, 0) for (i, on), x in zip(rows.tangents, y, strict=True)]
    return _ConePoint(normal, tangent, r_normal, r_tangent, left, direction, closed, slides)


# --- Linear systems of rows in memory, of which each has a range of columns that may not be zero


class LinearSystem(NamedTuple):
    """A x = b."""

    # `A`, `b`: rows of A begin at multiples of their number.
    A: Array
    b: Array
    rows: Array  # how many there are
    # `begin`, `end`: of each the columns that may not be zero, also once others are eliminated: no row ends
    # before one above it, and a column ends where the row of its number does.
    begin: Array
    end: Array

    def _held(self, place: Array) -> Array:
        """An entry of A without its derivatives."""
        return freeze(entry(self.A, place))

    def eliminate(self) -> "LinearSystem":
        """Factors L and U in the place of A, by pivots as they come, and L^-1 b in that of b."""

        def below(j: Array, so_far: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            (A, b, scaled), own, count = so_far, j * self.rows + j, entry(self.end, j) - j - 1
            pivot = entry(A, own)
            inverse = 1 / jnp.where(pivot == 0, 1, pivot)
            # A copy, as of two parts of one array LLVM does not know that they do not overlap.
            scale = lambda c, x: put(x, c, entry(A, own + 1 + c) * inverse)
            scaled, of_b = loop(count, scale, scaled), entry(b, j) * inverse
            A = loop(count, lambda c, A: put(A, own + 1 + c, entry(scaled, c)), A)

            def less(i: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
                (A, b), row = so_far, j + 1 + i
                to = row * self.rows + j
                factor = jnp.where(entry(self.begin, row) <= j, -entry(A, to), 0)
                b = put(b, row, entry(b, row) + factor * of_b)
                return add_scaled(A, to + 1, factor, scaled, 0, count), b

            return *loop(count, less, (A, put(b, j, of_b))), scaled

        A, b, _ = loop(self.rows, below, (self.A, self.b, blank(self.b.size, self.b.dtype)))
        return self._replace(A=A, b=b)

    def substitute(self) -> Array:
        """The solution of an eliminated system; the matrix is held."""

        def above(back: Array, b: Array) -> Array:
            j = self.rows - 1 - back
            less = lambda c, x: x - self._held(j * self.rows + j + 1 + c) * entry(b, j + 1 + c)
            return put(b, j, loop(entry(self.end, j) - j - 1, less, entry(b, j)))

        return loop(self.rows, above, self.b)

    def solve(self, b: Array) -> Array:
        """The solution of an eliminated system for another b."""

        def below(j: Array, b: Array) -> Array:
            own, first = j * self.rows, entry(self.begin, j)
            less = lambda c, x: x - self._held(own + first + c) * entry(b, first + c)
            pivot = self._held(own + j)
            return put(b, j, loop(j - first, less, entry(b, j)) * (1 / jnp.where(pivot == 0, 1, pivot)))

        return self._replace(b=loop(self.rows, below, b)).substitute()


class _State(NamedTuple):
    """Where the iteration is, with u = G p + u' of two places."""

    # `p`, `u`: the place.
    p: Array
    u: Array
    # `centre`, `u_centre`: where e pulls to.
    centre: Array
    u_centre: Array
    best: Array  # the best place so far
    # `e`, `shrink`, `tries`: how much it pulls, what it is to shrink by, and steps with this e.
    e: Array
    shrink: Array
    tries: Array
    steps: Array  # all steps
    # `residual`, `enough`, `stalled`: of the best place, what rounding lets be, and what steps that failed do.
    residual: Array
    enough: Array
    stalled: Array


class _Iteration(NamedTuple):
    """A problem with u' of size 1 and the mean of G's diagonal 1."""

    # `contacts`, `room`: the list, with laws in these units.
    contacts: ContactList
    room: Room
    # `of`, `mass`, `diagonal`: the Delassus operator, its unit, and its diagonal in these units.
    of: DelassusRows | KnownDelassus
    mass: Array
    diagonal: Array
    base: Array  # u'
    tolerance: Array | float  # of the residual

    def laws(self, k: Array) -> tuple[Array, Array]:
        """Mu and c of a contact."""
        return entry(self.contacts.friction, k), entry(self.contacts.limit, k)

    def cut(self, k: Array, e: Array, place: tuple[Array, Array], centre: Array) -> _ConePoint:
        """The cut of a contact."""
        return _cut(_rows_of(self.contacts, k, self.room), self.laws(k), self.diagonal, e, place, centre)

    def moved(self, u: Array, p: Array) -> Array:
        """u = G p + u'."""
        return self.of.apply(copy_entries(u, self.base, self.contacts.rows), p, self.mass)

    def violation(self, p: Array, u: Array) -> tuple[Array, Array]:
        """The largest violation, of normal rows, of the cone and, over the size of p, of maximum dissipation; and the
        residual that rounding lets be."""
        zero = jnp.zeros((), p.dtype)
        largest = lambda i, size: jnp.maximum(size, jnp.abs(entry(p, i)))
        size = 1 + loop(self.contacts.rows, largest, zero)

        def of_contact(k: Array, so_far: Array) -> Array:
            rows, (mu, c) = _rows_of(self.contacts, k, self.room), self.laws(k)
            pressed, parting = (jnp.where(rows.has_normal, entry(x, rows.normal), 0) for x in (p, u))
            so_far = jnp.maximum(so_far, jnp.abs(jnp.minimum(pressed, parting)))
            if not rows.tangents:
                return so_far
            bound = mu * pressed + c
            force, slip = ([jnp.where(on, entry(x, i), 0) for i, on in rows.tangents] for x in (p, u))
            length = lambda x: jnp.sqrt(sum((y * y for y in x), zero))
            power = sum((x * y for x, y in zip(force, slip, strict=True)), zero)
            off = jnp.maximum(length(force) - bound, jnp.abs(power + bound * length(slip)) / size)
            return jnp.maximum(so_far, jnp.where(rows.tangents[0][1], off, 0))

        violation = loop(self.contacts.number, of_contact, zero)
        return violation, jnp.maximum(self.tolerance, ROUNDING * jnp.finfo(p.dtype).eps * size)

    def errors(self, state: _State) -> tuple[Array, Array]:
        """The largest |p - P(y)| with the pull of e, and without."""
        place = state.p, state.u

        def of_contact(k: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
            cuts = (self.cut(k, state.e, place, centre) for centre in (state.centre, state.p))
            worst = lambda most, cut: max_of(most, cut.normal, *cut.tangent)
            max_of = lambda most, *x: most if not x else jnp.maximum(jnp.abs(x[0]), max_of(most, *x[1:]))
            return tuple(worst(most, cut) for most, cut in zip(so_far, cuts, strict=True))  # pyright: ignore[reportReturnType]

        zero = jnp.zeros_like(state.e)
        return loop(self.contacts.number, of_contact, (zero, zero))

    def slope(
        self, k: Array, e: Array, place: tuple[Array, Array], centre: Array
    ) -> tuple[_ConePoint, list[Array], list[list[Array]], list[Array]]:
        """The cut of a contact, the places of its rows, the derivative of P(y) by y there, and their sizes r."""
        rows, (mu, _) = _rows_of(self.contacts, k, self.room), self.laws(k)
        cut = self.cut(k, e, place, centre)
        closed = (cut.closed & rows.has_normal).astype(e.dtype)
        pressing = [jnp.where(cut.slides, closed * mu, 0) * x for x in cut.direction]
        shares = [[closed, *(jnp.zeros_like(e) for _ in rows.tangents)]]
        for a, along in enumerate(cut.direction):
            turning = [cut.left * (float(a == b) - along * other) for b, other in enumerate(cut.direction)]
            shares.append([pressing[a], *turning])
        sizes = [cut.r_normal, *(cut.r_tangent for _ in rows.tangents)]
        return cut, [rows.normal, *(i for i, _ in rows.tangents)], shares, sizes

    def linear_system(
        self, e: Array, place: tuple[Array, Array], centre: Array, *, whole: bool = False
    ) -> tuple[LinearSystem, Array, Array]:
        """A x = p - P(y), where A = 1 - P' (1 - r (G + e 1)), of the rows of contacts whose P(y) depends on y, or of the
        `whole`; which rows these are; and x of the others."""
        room, of, whole_type = self.room, self.of, self.contacts.row.dtype
        on_rows, reals = lambda: blank(room.stride, whole_type), lambda: blank(room.stride, e.dtype)

        def choose(k: Array, so_far: tuple) -> tuple:
            chosen, before, off, rest, number = so_far
            cut, places, *_ = self.slope(k, e, place, centre)
            _, has_normal, tangents = _rows_of(self.contacts, k, room)
            rubs = tangents[0][1] & (cut.left > 0) if tangents else jnp.asarray(False)
            acts = jnp.asarray(True) if whole else (cut.closed & has_normal) | rubs
            for i, x in zip(places, [cut.normal, *cut.tangent], strict=True):
                off, rest = put(off, i, x), put(rest, i, jnp.where(acts, 0, x))
            first, size = entry(self.contacts.row, k), entry(self.contacts.normals, k)
            size = size + entry(self.contacts.tangents, k)
            step = acts.astype(whole_type)

            def number_row(a: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
                chosen, before = so_far
                place = number + step * a
                return put(chosen, place, first + a), put(before, first + a, place)

            return *loop(size, number_row, (chosen, before)), off, rest, number + step * size

        start = on_rows(), on_rows(), reals(), reals(), jnp.zeros((), whole_type)
        chosen, before, off, rest, number = loop(self.contacts.number, choose, start)
        before = put(before, self.contacts.rows, number)
        moved = of.apply(put(fill_entries(reals(), 0, 0, self.contacts.rows), room.rows, 0), rest)

        def write(k: Array, system: LinearSystem) -> LinearSystem:
            _, places, shares, sizes = self.slope(k, e, place, centre)
            row = entry(self.contacts.row, k)
            begin, end = (entry(before, entry(x, row)) for x in (of.begin, of.end))
            # Rows that are not there go behind all others.
            to = [jnp.where(i < room.rows, entry(before, row) + i - row, room.rows) for i in places]
            factors = [[x * r * self.mass for x, r in zip(own, sizes, strict=True)] for own in shares]
            times = lambda own, x: sum((f * y for f, y in zip(own[1:], x[1:], strict=True)), own[0] * x[0])
            own_rows = [j * number for j in to]

            def column(c: Array, A: Array) -> Array:
                j = entry(chosen, begin + c)
                of_column = [entry(of.G, i * of.width + j) for i in places]
                for own, first in zip(factors, own_rows, strict=True):
                    A = put(A, first + begin + c, times(own, of_column))
                return A

            A = loop(end - begin, column, system.A)
            b, begins, ends = system.b, system.begin, system.end
            of_rest = [entry(moved, i) for i in places]
            for own, i, j, first, factor in zip(shares, places, to, own_rows, factors, strict=True):
                for at, share, r in zip(to, own, sizes, strict=True):
                    A = put(A, first + at, entry(A, first + at) + share * (r * e - 1))
                A = put(A, first + j, entry(A, first + j) + 1)
                b = put(b, j, entry(off, i) - times(factor, of_rest))
                begins, ends = put(begins, j, begin), put(ends, j, end)
            return LinearSystem(A, b, number, begins, ends)

        def write_chosen(k: Array, system: LinearSystem) -> LinearSystem:
            row = entry(self.contacts.row, k)
            after = row + entry(self.contacts.normals, k) + entry(self.contacts.tangents, k)
            acts = (entry(before, after) > entry(before, row)).astype(whole_type)
            return loop(acts, lambda _, system: write(k, system), system)

        start = LinearSystem(blank(of.G.size, e.dtype), reals(), number, on_rows(), on_rows())
        return loop(self.contacts.number, write_chosen, start), chosen, rest

    def step(self, state: _State) -> _State:
        """One of Newton's method, with another e where this one has done its part, or failed."""
        rows = self.contacts.rows
        p, u, centre, u_centre, best, e, shrink, tries, steps, residual, enough, stalled = state
        eps = jnp.finfo(p.dtype).eps
        size = 1 + loop(rows, lambda i, most: jnp.maximum(most, jnp.abs(entry(p, i))), jnp.zeros_like(e))
        error, whole = self.errors(state)
        done = error < jnp.maximum(NEARER * whole, ROUNDING * eps * size)
        failed = ~done & (tries >= TRIES)
        other = jnp.where(failed, jnp.minimum(e * GROW, MOST), e)
        e = jnp.where(done, jnp.maximum(e * shrink, choose_by_precision(p.dtype, *LEAST)), other)
        shrink = jnp.where(failed, LITTLE, jnp.where(done, jnp.maximum(0.5 * shrink, SHRINK), shrink))
        back, on = jnp.where(failed, rows, 0), jnp.where(done, rows, 0)
        p, u = copy_entries(p, centre, back), copy_entries(u, u_centre, back)
        centre, u_centre = copy_entries(centre, p, on), copy_entries(u_centre, u, on)
        system, chosen, rest = self.linear_system(e, (p, u), centre)
        x = system.eliminate().substitute()
        p = loop(rows, lambda i, p: put(p, i, entry(p, i) - entry(rest, i)), p)
        less = lambda c, p: put(p, entry(chosen, c), entry(p, entry(chosen, c)) - entry(x, c))
        p = loop(system.rows, less, p)
        u = self.moved(u, p)
        violation, allowed = self.violation(p, u)
        better = violation < residual
        best = copy_entries(best, p, jnp.where(better, rows, 0))
        return _State(
            p,
            u,
            centre,
            u_centre,
            best,
            e,
            shrink,
            jnp.where(done | failed, 0, tries + 1),
            steps + 1,
            jnp.where(better, violation, residual),
            jnp.where(better, allowed, enough),
            jnp.where(failed, choose_by_precision(p.dtype, *STALLED), stalled),
        )

    def run(self, p: Array) -> tuple[Array, Array, Array, Array]:
        """The best p found from a guess, u there, its residual, and how many steps that took."""
        rows, zero = self.contacts.rows, jnp.zeros((), p.dtype)
        new = lambda: blank(p.size, p.dtype)
        u = self.moved(new(), p)
        residual, enough = self.violation(p, u)
        centre, u_centre, best = (
            copy_entries(new(), p, rows),
            copy_entries(new(), u, rows),
            copy_entries(new(), p, rows),
        )
        begun = zero + FIRST, zero + SHRINK, zero, zero
        start = _State(p, u, centre, u_centre, best, *begun, residual, enough, zero)
        # False for what is not a number: nothing can be found there.
        goes_on = lambda s: (s.residual > jnp.maximum(s.enough, s.stalled)) & (s.steps < STEPS)
        end = lax.while_loop(goes_on, self.step, start)
        return end.best, self.moved(end.u, end.best), end.residual, end.steps


def solve(
    contacts: ContactList,
    room: Room,
    of: DelassusRows,
    tolerance: float,
    enough: Array | float,
    change: Array,
) -> ImpulseSolution:
    """The impulses of a list of contacts, with what they change velocities by added to a change."""
    found = _solve(contacts, room, of, tolerance, enough)
    add = lambda k, i, x: of.add_response(k, i, entry(found.p, i), x)
    return found._replace(change=contacts.over_rows(add, change))


def solve_known(contacts: ContactList, room: Room, of: KnownDelassus, tolerance: float) -> ImpulseSolution:
    """The impulses of a list of contacts whose Delassus operator is known; what they change is left out."""
    return _solve(contacts, room, of, tolerance, 0.0)


def _solve(
    contacts: ContactList,
    room: Room,
    of: DelassusRows | KnownDelassus,
    tolerance: float,
    enough: Array | float,
) -> ImpulseSolution:
    """The impulses of a list of contacts, to a tolerance of the residual of the scaled problem; velocities may be off by
    `enough` in any case."""
    G, width = of.G, of.width
    m, dtype = contacts.rows, contacts.u.dtype
    zero = jnp.zeros((), dtype)

    def sizes(i: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
        trace, speed = so_far
        return trace + entry(G, i * width + i), jnp.maximum(speed, jnp.abs(entry(contacts.u, i)))

    trace, speed = loop(m, sizes, (zero, zero))
    mean, speed = trace / jnp.maximum(m, 1).astype(dtype), jnp.maximum(speed, enough / tolerance)
    scale, speed = (jnp.where(x > 0, x, 1) for x in (mean, speed))
    of_force, of_mass = scale / speed, 1 / scale
    by_row = lambda value: loop(m, lambda i, x: put(x, i, value(i)), blank(room.stride, dtype))
    diagonal = put(by_row(lambda i: of_mass * entry(G, i * width + i)), room.rows, 0)
    base = by_row(lambda i: entry(contacts.u, i) / speed)
    p = by_row(lambda i: entry(contacts.p, i) * of_force)
    limit = loop(contacts.number, lambda k, x: put(x, k, entry(x, k) * of_force), contacts.limit)
    problem = _Iteration(contacts._replace(limit=limit), room, of, of_mass, diagonal, base, tolerance)
    p, u, residual, steps = problem.run(p)

    def modes(k: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
        cut = problem.cut(k, zero, (p, u), p)
        closed, sliding = so_far
        return put(closed, k, cut.closed), put(sliding, k, cut.closed & cut.slides)

    by_contact = [blank(contacts.friction.size, dtype) for _ in range(2)]
    closed, sliding = loop(contacts.number, modes, (by_contact[0], by_contact[1]))
    p = loop(m, lambda i, p: put(p, i, entry(p, i) / of_force), p)
    return ImpulseSolution(p, jnp.zeros(0, dtype), closed, sliding, residual, steps)


# --- Derivatives of a solution: one step of Newton's method more, with its matrix held


_AGAIN = 7  # steps that make up for e: each by e beside the smallest positive eigenvalue of G


def linearize_solution(
    contacts: ContactList, room: Room, of: DelassusRows | KnownDelassus, u: Array
) -> Callable[[Array, Array], Array]:
    """What gives impulses the derivative of a solution, of a list of closed contacts with velocities u after impulses.

    It takes impulses and velocities of the same values, and returns p less A^-1 (p - P(y)) with A held: the derivative is
    that by velocities as they would change if impulses did not, and by the friction of the list.
    """
    m, width, dtype = contacts.rows, of.width, u.dtype
    by_row = lambda value: loop(m, lambda i, x: put(x, i, value(i)), blank(room.stride, dtype))
    diagonal = by_row(lambda i: freeze(entry(of.G, i * width + i)))
    trace = loop(m, lambda i, x: x + entry(diagonal, i), jnp.zeros((), dtype))
    e = IMPLICIT * jnp.where(trace > 0, trace / jnp.maximum(m, 1).astype(dtype), 1)
    one = jnp.ones((), dtype)
    problem = _Iteration(contacts, room, of, one, put(diagonal, room.rows, 0), u, one)
    at = contacts.p, by_row(lambda i: freeze(entry(u, i)))
    solve = problem.linear_system(e, at, at[0], whole=True)[0].eliminate().solve

    def pull(x: Array) -> Array:
        """What e adds to the residual of a change."""

        def of_contact(k: Array, y: Array) -> Array:
            _, places, shares, sizes = problem.slope(k, e, at, at[0])
            for i, row in zip(places, shares, strict=True):
                terms = [freeze(s * r * e) * entry(x, j) for s, r, j in zip(row, sizes, places, strict=True)]
                y = put(y, i, sum(terms[1:], terms[0]))
            return y

        x = put(x, room.rows, 0)
        return loop(contacts.number, of_contact, blank(room.stride, dtype))

    def follow(p: Array, u: Array) -> Array:
        def residual(k: Array, b: Array) -> Array:
            rows, cut = _rows_of(contacts, k, room), problem.cut(k, e, (p, u), p)
            places = [rows.normal, *(i for i, _ in rows.tangents)]
            for i, off in zip(places, [cut.normal, *cut.tangent], strict=True):
                b = put(b, i, off)
            return b

        def again(_: Array, x: Array) -> Array:
            more = solve(pull(x))
            return by_row(lambda i: entry(first, i) + entry(more, i))

        first = solve(loop(contacts.number, residual, blank(room.stride, dtype)))
        change = loop(jnp.asarray(_AGAIN), again, by_row(lambda i: entry(first, i)))
        return by_row(lambda i: entry(p, i) - entry(change, i))

    return follow
