"""The iteration of `_contact_newton` as machine code with loops: Newton's method on rows that are known when it runs."""

import itertools
from typing import NamedTuple

from .._compiler import ArrayPlace, Function, Value
from .._formula._contact_newton import FIRST, GROW, LEAST, MOST, NEARER, ROUNDING, SHRINK, STEPS, TRIES


class Sizes(NamedTuple):
    """Of contacts n, their rows m, and velocities v; none where the Delassus operator is given in place of J and W."""

    n: int
    m: int
    v: int

    @property
    def operands(self) -> tuple[int, ...]:
        """Numbers of J (or G), W, further velocities, u', mu, c, which are active, and the guess."""
        n, m, v = self
        return m * (v or m), v * v, v, m, n, n, n, m

    @property
    def found(self) -> tuple[int, ...]:
        """Numbers of p, residual, steps, which contacts are closed, which slide, and the change of velocities."""
        n, m, v = self
        return m, 1, 1, n, n, v

    @property
    def width(self) -> int:
        """Of a row of the linear system, with its right side."""
        return -(-(self.m + 1) // 4) * 4

    @property
    def numbers(self) -> int:
        """How many numbers a member works with."""
        n, m, v = self
        return 2 * m * self.width + m * v + 12 * m + 5 * n


class Arrays:
    """What a member works with: matrices, and numbers by row and by contact, in the order of active ones.

    **Arguments:**

    - `f`: the function.
    - `sizes`: of the problem.
    - `free`: where so many numbers are free.
    """

    def __init__(self, f: Function, sizes: Sizes, free: ArrayPlace):
        n, m, v = sizes
        lengths = (*[m * sizes.width] * 2, m * v, *[m] * 12, *[n] * 5)
        places = iter([free.at(start) for start in itertools.accumulate(lengths, initial=0)])
        take = lambda: next(places)
        self.G, self.A, self.R = take(), take(), take()
        self.p, self.u, self.base, self.centre, self.u_centre, self.best = (take() for _ in range(6))
        self.F, self.r, self.direction, self.diagonal, self.own, self.solved = (take() for _ in range(6))
        self.left, self.mu, self.c, self.closed, self.sliding = (take() for _ in range(5))
        integers = lambda count: f.several(count, "i64")
        self.start, self.normals, self.tangents, self.which = (integers(n) for _ in range(4))
        self.row, self.contacts, self.rows = integers(m), f.variable(0, "i64"), f.variable(0, "i64")


class Iteration:
    """Writes Newton's method.

    **Arguments:**

    - `f`: the function.
    - `sizes`: of the problem.
    - `x`: of a member: G and what is given are there.
    - `tolerance`: of the residual.
    """

    def __init__(self, f: Function, sizes: Sizes, x: Arrays, tolerance: float):
        self.f, self.sizes, self.x, self.tolerance = f, sizes, x, tolerance
        self.e, self.tries, self.steps = f.variable(), f.variable(), f.variable()
        self.residual, self.size, self.enough = f.variable(), f.variable(), f.variable()

    def run(self) -> None:
        """From a guess p to the best p found, its residual, and the modes there."""
        f, x = self.f, self.x
        self._move()
        self._copy((x.centre, x.p), (x.u_centre, x.u), (x.best, x.p))
        self.e[0], self.tries[0], self.steps[0] = FIRST, 0.0, 0.0
        self.residual[0] = self._violation()
        self.enough[0] = f.max(f.value(self.tolerance), self._rounding)
        # False for what is not a number: nothing can be found there.
        with f.when(self.residual[0] > self.enough[0]), f.repeat() as again:
            self._step()
            again.append(((self.residual[0] > self.enough[0]) & (self.steps[0] < STEPS)).name)
        self._copy((x.p, x.best))
        self._move()
        self._cut(f.value(0.0), x.p)

    def _copy(self, *pairs: tuple[ArrayPlace, ArrayPlace]) -> None:
        with self.f.loop(self.x.rows[0]) as i:
            for to, of in pairs:
                to[i] = of[i]

    def _move(self) -> None:
        """u = G p + u'."""
        f, x = self.f, self.x
        with f.loop(x.rows[0]) as i:
            x.u[i] = f.dot(x.G.at(i * self.sizes.width), x.p, x.rows[0]) + x.base[i]

    @property
    def _rounding(self) -> Value:
        """That of G p + u', where p is."""
        return self.f.eps * ROUNDING * self.size[0]

    def _violation(self) -> Value:
        """The largest: of Signorini's conditions, of the cone, and, over the size of p, of maximum dissipation."""
        f, x = self.f, self.x
        largest = f.variable()
        self.size[0] = 1.0
        with f.loop(x.rows[0]) as i:
            self.size[0] = f.max(self.size[0], 1.0 + f.abs(x.p[i]))
        with f.loop(x.contacts[0]) as k:
            s, bound = x.start[k], f.variable()
            bound[0] = x.c[k]
            with f.when(x.normals[k] > 0):
                p, u = x.p[s], x.u[s]
                largest[0] = f.max(largest[0], f.abs(f.min(p, u)))
                bound[0] = bound[0] + x.mu[k] * p
            t, count = s + x.normals[k], x.tangents[k]
            with f.when(count > 0):
                p, u = x.p.at(t), x.u.at(t)
                force, slip = (f.sqrt(f.dot(y, y, count)) for y in (p, u))
                off = f.abs(f.dot(p, u, count) + bound[0] * slip) / self.size[0]
                largest[0] = f.max(f.max(largest[0], force - bound[0]), off)
        return largest[0]

    def _cut(self, e: Value, centre: ArrayPlace) -> Value:
        """F = p - P(p - r u) of G + e 1, with r, modes and what derivatives need; returns its largest entry."""
        f, x = self.f, self.x
        largest = f.variable()
        y = lambda i: x.p[i] - x.r[i] * (x.u[i] + e * (x.p[i] - centre[i]))
        with f.loop(x.contacts[0]) as k:
            s, pressed = x.start[k], f.variable()
            has_normal = x.normals[k] > 0
            with f.when(has_normal):
                x.r[s] = 1.0 / f.abs(x.diagonal[s] + e)
                pressed[0] = y(s)
                x.F[s] = x.p[s] - f.max(pressed[0], 0.0)
                largest[0] = f.max(largest[0], f.abs(x.F[s]))
            x.closed[k] = f.where((pressed[0] > 0.0) | ~has_normal, 1.0, 0.0)
            x.sliding[k], x.left[k] = 0.0, 1.0
            with f.when(x.tangents[k] > 0):
                bound = x.mu[k] * f.max(pressed[0], 0.0) + x.c[k]
                self._cut_tangent(k, s + x.normals[k], e, y, bound)
                with f.loop(x.tangents[k]) as a:
                    largest[0] = f.max(largest[0], f.abs(x.F[s + x.normals[k] + a]))
        return largest[0]

    def _cut_tangent(self, k: Value, t: Value, e: Value, y: object, bound: Value) -> None:
        """Of the tangential rows of contact k, from row t on."""
        f, x, count = self.f, self.x, self.x.tangents[k]
        mean, square, number = f.variable(), f.variable(), f.variable()
        with f.loop(count) as a:
            mean[0], number[0] = mean[0] + x.diagonal[t + a] + e, number[0] + 1.0
        rate = number[0] / mean[0]
        with f.loop(count) as a:
            x.r[t + a] = rate
            x.own[t + a] = y(t + a)  # pyright: ignore[reportCallIssue]
            square[0] = square[0] + x.own[t + a] * x.own[t + a]
        slides = (square[0] > bound * bound) | (bound <= 0.0)
        length = f.sqrt(f.where(square[0] > 0.0, square[0], 1.0))
        x.sliding[k], x.left[k] = f.where(slides, 1.0, 0.0), f.where(slides, bound / length, 1.0)
        with f.loop(count) as a:
            x.direction[t + a] = f.where(slides, x.own[t + a] / length, 0.0)
            x.F[t + a] = x.p[t + a] - x.left[k] * x.own[t + a]

    def _step(self) -> None:
        """One step, with another e where this one has done its part, or failed; see `newton_step`."""
        f, x, e = self.f, self.x, self.e
        error, whole = self._cut(e[0], x.centre), self._cut(e[0], x.p)
        done = error < f.max(NEARER * whole, self._rounding)
        failed = ~done & ~(self.tries[0] < TRIES)
        less, more = f.max(e[0] * SHRINK, LEAST), f.min(e[0] * GROW, MOST)
        e[0] = f.where(done, less, f.where(failed, more, e[0]))
        with f.when(failed):
            self._copy((x.p, x.centre), (x.u, x.u_centre))
        with f.when(done):
            self._copy((x.centre, x.p), (x.u_centre, x.u))
        self._cut(e[0], x.centre)
        self._linearized()
        self._eliminated()
        with f.loop(x.rows[0]) as i:
            x.p[i] = x.p[i] - x.solved[i]
        self._move()
        self.tries[0] = f.where(done | failed, 0.0, self.tries[0] + 1.0)
        self.steps[0] = self.steps[0] + 1.0
        residual = self._violation()
        with f.when(residual < self.residual[0]):
            self.residual[0], self.enough[0] = residual, f.max(f.value(self.tolerance), self._rounding)
            self._copy((x.best, x.p))

    def _linearized(self) -> None:
        """Rows of A = 1 - P' (1 - r (G + e 1)), and F behind them."""
        f, x, width = self.f, self.x, self.sizes.width
        with f.loop(x.rows[0]) as i:
            row = x.A.at(i * width)
            with f.loop(x.rows[0]) as j:
                row[j] = 0.0
            row[i], row[x.rows[0]] = 1.0, x.F[i]
        with f.loop(x.contacts[0]) as k:
            s = x.start[k]
            closed = (x.closed[k] > 0.5) & (x.normals[k] > 0)
            with f.when(closed):
                self._enters(s, s, f.value(1.0))
            t = s + x.normals[k]
            with f.loop(x.tangents[k]) as a:
                with f.loop(x.tangents[k]) as b:
                    turning = x.left[k] * x.direction[t + a] * x.direction[t + b]
                    self._enters(t + a, t + b, f.where(a.equals(b), x.left[k], 0.0) - turning)
                with f.when(closed & (x.sliding[k] > 0.5)):
                    self._enters(t + a, s, x.mu[k] * x.direction[t + a])

    def _enters(self, i: Value, j: Value, factor: Value) -> None:
        """Takes from row i of A the row j of 1 - r (G + e 1), times a factor."""
        f, x, width = self.f, self.x, self.sizes.width
        rate = factor * x.r[j]
        f.add(x.A.at(i * width), rate, x.G.at(j * width), x.rows[0])
        row = x.A.at(i * width)
        row[j] = row[j] + (rate * self.e[0] - factor)

    def _eliminated(self) -> None:
        """A^-1 F, with pivots as they come: e keeps them from zero, or is made to."""
        f, x, width, rows = self.f, self.x, self.sizes.width, self.x.rows[0]
        with f.loop(rows) as j:
            own, rest = x.A.at(j * width + j), rows - j
            pivot = own[0]
            inverse = 1.0 / f.where(f.abs(pivot) > 0.0, pivot, 1.0)
            with f.loop(rest + 1) as k:
                own[k] = own[k] * inverse
            with f.loop(rest - 1) as i:
                other = x.A.at((j + i + 1) * width + j)
                with f.when(f.abs(other[0]) > 0.0):
                    f.add(other, 0.0 - other[0], own, rest + 1)
        with f.loop(rows) as back:
            i = rows - 1 - back
            row = x.A.at(i * width + i + 1)
            x.solved[i] = row[back] - f.dot(row, x.solved.at(i + 1), back)
