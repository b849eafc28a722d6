"""The contact problem as machine code with loops: as many rows as are active, member by member, nothing written out.

It is the method of `_contact_newton`, on the active contacts only. A contact without friction has no tangential rows.
"""

import functools
import itertools
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._compiler import ArrayPlace, Function, Kind, Looped, LoopText, Spread, Value, remembered
from .._formula._contact_newton import ContactSolution, on_arrays
from .._formula._contact_problem import ContactData, Layout, apart, data_of, flattened, rows_in
from .._pseudoinverse._kernels import dot
from ._newton_loops import Arrays, Iteration, Sizes

BLOCK = 8
"""Members whose operands are fetched together: they stand side by side, and a cache line holds as many."""


class Kernel:
    """Writes the function.

    **Arguments:**

    - `layout`: whose rows are which.
    - `v`: how many velocities; none where the Delassus operator is given.
    - `tolerance`: of the residual.
    - `dtype`: of the numbers.
    """

    def __init__(self, layout: Layout, v: int, tolerance: float, dtype: str):
        self.layout, self.tolerance, self.dtype = layout, tolerance, dtype
        self.sizes = Sizes(len(layout), sum(int(n) + t for n, t in layout), v)

    @property
    def numbers(self) -> int:
        """How many numbers it needs to work with."""
        return BLOCK * sum(self.sizes.operands) + self.sizes.numbers

    def text(self) -> str:
        """The function `compute` of numbers to work with, the result, how many members there are, and the operands."""
        f = Function(self.dtype)
        operands = [x for x in self.sizes.operands if x]
        starts = itertools.accumulate((BLOCK * x for x in operands), initial=0)
        *places, free = (f.given("%work").at(x) for x in starts)
        self.begin(f, free)
        self.any = f.several(self.sizes.n, "i64")
        members = Value(f, "i64", "%members")
        with f.loop((members + (BLOCK - 1)) // BLOCK) as block:
            first = block * BLOCK
            there = members - first
            there = members, f.where(there < BLOCK, there, BLOCK)
            given = [f.given(f"%given{i}").at(first) for i in range(len(operands))]
            self._fetched(given, places, operands, there)
            with f.loop(there[1]) as k:
                own = [p.at(k * size) for p, size in zip(places, operands, strict=True)]
                self.member(own, f.given("%found").at(first + k), members)
        names = "".join(f", ptr noalias %given{i}" for i in range(len(operands)))
        parameters = f"ptr noalias %work, ptr noalias %found, i64 %members{names}"
        return "\n".join([f.declared(), *self.tables(), f.w.function("compute", parameters, internal=False)])

    def begin(self, f: Function, free: ArrayPlace) -> None:
        """Begins to write within a function, where so many numbers as `sizes` says are free."""
        self.f, self.x = f, Arrays(f, self.sizes, free)
        self.iteration = Iteration(f, self.sizes, self.x, self.tolerance)

    def _fetched(
        self,
        given: list[ArrayPlace],
        places: list[ArrayPlace],
        operands: list[int],
        there: tuple[Value, Value],
    ) -> None:
        """Copies what a block of members needs: of J the rows of contacts that are active in one of them."""
        f, (n, m, v), active, some = self.f, self.sizes, places[-2], self.f.variable(0, "i64")
        for of, to, size in list(zip(given, places, operands, strict=True))[-5:]:
            self._copied(of, to, size, 0, size, there)
        with f.loop(n) as i:
            self.any[i] = 0
            with f.loop(there[1]) as k, f.when(active.at(k * n)[i] > 0.5):
                self.any[i] = some[0] = 1
            with f.when(self.any[i] > 0):
                starts, normals, tangents = self._of_contacts
                width = v or m
                count = (normals[i] + tangents[i]) * width
                self._copied(given[0], places[0], operands[0], starts[i] * width, count, there)
        with f.when(some[0] > 0):
            for of, to, size in list(zip(given, places, operands, strict=True))[1:-5]:
                self._copied(of, to, size, 0, size, there)

    def _copied(
        self,
        of: ArrayPlace,
        to: ArrayPlace,
        size: int,
        first: Value | int,
        count: Value | int,
        there: tuple[Value, Value],
    ) -> None:
        f = self.f
        with f.loop(count) as j:
            i = j + first
            line = of.at(i * there[0])
            with f.loop(there[1]) as k:
                to.at(k * size)[i] = line[k]

    @property
    def _of_contacts(self) -> list[ArrayPlace]:
        """Of each contact its first row, whether it has a normal one, and how many tangential ones."""
        return [self.f.given(f"@{name}", "i64") for name in ("starts", "normals", "tangents")]

    def tables(self) -> list[str]:
        """Of the contacts."""
        sizes = [int(n) + t for n, t in self.layout]
        tables = {
            "starts": np.cumsum([0, *sizes])[:-1],
            "normals": [int(n) for n, _ in self.layout],
            "tangents": [t for _, t in self.layout],
        }
        return [
            f"@{name} = internal constant [{len(x)} x i64] [{', '.join(f'i64 {int(i)}' for i in x)}]"
            for name, x in tables.items()
        ]

    def member(self, given: Sequence[ArrayPlace | Spread], found: ArrayPlace, members: Value) -> None:
        """Writes the solution of one member.

        **Arguments:**

        - `given`: its operands, as `Sizes` says.
        - `found`: where its results go.
        - `members`: how far apart these are.
        """
        f, x, sizes = self.f, self.x, self.sizes
        J, *more, u, mu, c, active, guess = given
        parts = [found.at(members * int(i)) for i in np.cumsum([0, *sizes.found])]
        with f.loop(sum(sizes.found)) as i:
            found[i * members] = 0.0
        self._gathered(mu, c, active)
        with f.when(x.rows[0] > 0):
            with f.loop(x.rows[0]) as i:
                row = x.row[i]
                x.base[i], x.p[i] = u[row], guess[row]
                for further in more[1:]:
                    x.base[i] = x.base[i] + f.dot(J.at(row * sizes.v), further, sizes.v)
            self._delassus(J, *more[:1])
            unit = self._scaled()
            self.iteration.run()
            with f.loop(x.rows[0]) as i:
                x.p[i] = x.p[i] * unit
                parts[0][x.row[i] * members] = x.p[i]
            parts[1][0], parts[2][0] = self.iteration.residual[0], self.iteration.steps[0]
            with f.loop(x.contacts[0]) as k:
                place = x.which[k] * members
                parts[3][place] = x.closed[k]
                parts[4][place] = x.closed[k] * x.sliding[k]
            with f.loop(sizes.v) as j:
                change = f.variable()
                with f.loop(x.rows[0]) as i:
                    change[0] = change[0] + x.R[i * sizes.v + j] * x.p[i]
                parts[5][j * members] = change[0]

    def _gathered(self, mu: ArrayPlace | Spread, c: ArrayPlace | Spread, active: ArrayPlace | Spread) -> None:
        """Lists the active contacts and their rows."""
        f, x = self.f, self.x
        starts, normals, tangents = self._of_contacts
        x.contacts[0] = x.rows[0] = 0
        with f.loop(self.sizes.n) as i, f.when(active[i] > 0.5):
            k, row = x.contacts[0], x.rows[0]
            x.start[k], x.which[k], x.normals[k] = row, i, normals[i]
            x.mu[k], x.c[k] = mu[i], c[i]
            x.tangents[k] = f.where((mu[i] > 0.0) | (c[i] > 0.0), tangents[i], 0)
            count = x.normals[k] + x.tangents[k]
            with f.loop(count) as j:
                x.row[row + j] = starts[i] + j
            x.contacts[0], x.rows[0] = k + 1, row + count

    def _delassus(self, J: ArrayPlace | Spread, W: ArrayPlace | Spread | None = None) -> None:
        """G of the active rows, and R = J W."""
        f, x, rows = self.f, self.x, self.x.rows[0]
        v, width = self.sizes.v, self.sizes.width
        if W is None:
            with f.loop(rows) as i, f.loop(rows) as j:
                x.G[i * width + j] = J[x.row[i] * self.sizes.m + x.row[j]]
            return
        with f.loop(rows) as i:
            R, own = x.R.at(i * v), J.at(x.row[i] * v)
            with f.loop(v) as k:
                R[k] = 0.0
            with f.loop(v) as k, f.when(f.abs(own[k]) > 0.0):
                f.add(R, own[k], W.at(k * v), v)
            with f.loop(i + 1) as j:
                x.G[i * width + j] = x.G[j * width + i] = f.dot(R, J.at(x.row[j] * v), v)

    def _scaled(self) -> Value:
        """The problem with u' of size 1 and the mean of G's diagonal 1; returns the unit of impulses."""
        f, x, width, rows = self.f, self.x, self.sizes.width, self.x.rows[0]
        trace, speed, count = f.variable(), f.variable(), f.variable()
        with f.loop(rows) as i:
            trace[0], count[0] = trace[0] + x.G[i * width + i], count[0] + 1.0
            speed[0] = f.max(speed[0], f.abs(x.base[i]))
        mean = trace[0] / count[0]
        scale, size = f.where(mean > 0.0, mean, 1.0), f.where(speed[0] > 0.0, speed[0], 1.0)
        of_force, of_mass = scale / size, 1.0 / scale
        with f.loop(rows) as i:
            with f.loop(rows) as j:
                x.G[i * width + j] = x.G[i * width + j] * of_mass
            x.diagonal[i] = x.G[i * width + i]
            x.base[i], x.p[i] = x.base[i] / size, x.p[i] * of_force
        with f.loop(x.contacts[0]) as k:
            x.c[k] = x.c[k] * of_force
        return size / scale


@remembered
def _code(layout: Layout, v: int, tolerance: float) -> Looped:
    sizes = Kernel(layout, v, tolerance, "float64").sizes
    m = sizes.m

    @functools.cache
    def text(kind: Kind, shared: tuple[bool, ...]) -> LoopText:
        kernel = Kernel(layout, v, tolerance, kind.dtype)
        return LoopText(kernel.text(), kernel.numbers)

    def separately(J: Array, *given: Array) -> Array:
        *more, u, mu, c, active, guess = given
        J, change = J.reshape(m, -1), guess[:0]
        data = ContactData(J, u, mu, c)
        if more:
            data = of_rows(J, more[0].reshape(v, v), u + dot(J, more[1]), mu, c)
        p, residual, steps, *modes = on_arrays(
            layout, tolerance, flattened(apart(layout, data, active)), guess
        )
        if more:
            change = dot(more[0].reshape(v, v), dot(p, J))
        return jnp.concatenate([p, residual[None], steps[None], *(x * active for x in modes), change])

    return Looped(text, sum(sizes.found), separately)


def of_rows(J: Array, W: Array, u: Array, mu: Array, c: Array) -> ContactData:
    """The problem of contacts with rows J (m, v) of what has the inverse inertia W (v, v)."""
    G = dot(dot(J, W), J.T)
    return ContactData(0.5 * (G + G.T), u, mu, c)


def by_loops(layout: Layout, tolerance: float, given: Array, guess: Array) -> ContactSolution:
    """The solution of a problem, flattened, as machine code where there can be such."""
    G, u, mu, c = data_of(layout, given)
    found = _code(layout, 0, tolerance)(G.reshape(-1), u, mu, c, jnp.ones_like(mu), guess)
    return _parts(layout, found)[0]


def of_velocities(
    layout: Layout, tolerance: float, J: Array, W: Array, *given: Array
) -> tuple[ContactSolution, Array]:
    """The solution of the problem of rows J, flattened, and the change of velocities W J^T p.

    **Arguments:**

    - `layout`: whose rows are which.
    - `tolerance`: of the residual.
    - `J`, `W`: of the rows, and the inverse inertia, both flattened.
    - `given`: velocities v and u', of u = J v + u' without impulses; mu and c; which contacts are active, as 1 or 0; a
      guess of p.
    """
    return _parts(layout, _code(layout, given[0].size, tolerance)(J, W, *given))


def _parts(layout: Layout, found: Array) -> tuple[ContactSolution, Array]:
    m, n = rows_in(layout), len(layout)
    p, residual, steps, closed, sliding, change = jnp.split(found, np.cumsum([m, 1, 1, n, n]))
    return ContactSolution(p, residual[0], steps[0], closed, sliding), change
