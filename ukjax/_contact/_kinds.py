"""Contacts of one kind, as a step over a list of contacts takes them.

A kind says of each of its contacts the gap and how fast its rate changes, from which follows which take part, and of
these their rows. Contacts of shapes are kinds whose programs run over lists of pairs (`mechanisms._contact_kinds`).
What a user's function says of several contacts at once is one kind, whose rows are computed together.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._formula._contact_list import SparseRows, entry, loop, put
from .._misc._types import is_traced
from .._system._constraint import AbstractUnilateral, DryFriction, Unilateral, slips, unilateral
from .._system._system import AbstractSystem


@final
class Instant:
    """Positions at one time, and what is computed of them once, for all kinds.

    **Arguments:**

    - `t`, `q`: time and positions.
    """

    def __init__(self, t: Array, q: Array):
        self.t, self.q = t, q
        self._known: dict[Any, Any] = {}

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` returns, for a key the first time."""
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]


class Motion(NamedTuple):
    """A motion at one instant.

    - `at`: the instant.
    - `v`: velocities.
    - `q_rate`, `a`: the rate of q, and accelerations.
    """

    at: Instant
    v: Array
    q_rate: Array
    a: Array


class ContactMotion(NamedTuple):
    """One contact.

    - `gap`: its gap.
    - `speed`: how fast the gap changes at most, if other impulses stop one of the two bodies: the sum of their speeds at
      the place of contact.
    - `gain`: by how much forces raise that in a unit of time at most: the sum of their accelerations.
    """

    gap: Array
    speed: Array
    gain: Array


class ContactKind(Protocol):
    """Contacts of one kind.

    - `contacts`: which of all contacts each is.
    - `has_gap`: whether they have normal rows.
    - `tangents`: how many tangential rows each has.
    - `width`: how many velocities move each at most.
    - `seeks`: whether where they are is sought, and not only computed: then `seek` finds it.
    - `is_thin`: whether bodies may pass through each other in one step: then `share_without_passing` says so.
    """

    contacts: tuple[int, ...]
    has_gap: bool
    tangents: int
    width: int
    seeks: bool
    is_thin: bool

    def moving(self, motion: Motion) -> Any:
        """What the others are computed from."""
        ...

    def everywhere(self) -> "ContactKind":
        """The same with the gaps of what is far apart, for which others stand in steps."""
        ...

    def nothing(self, at: Instant) -> Any:
        """What is kept before anything was sought."""
        ...

    def unsought(self, at: Instant, before: Any) -> Any:
        """What `seek` fills in, which begins from what was kept before."""
        ...

    def seek(self, at: Instant, unsought: Any) -> Any:
        """Where contacts are at an instant, as far as that is sought and not computed: what is kept of it."""
        ...

    def share_without_passing(self, instants: Sequence[Instant], before: Any, after: Any) -> Array:
        """How much of a step may be taken, as `ContactStep` says: of its start and others, by what was kept before it and
        after it."""
        ...

    def gaps(self, at: Instant, kept: Any, so_far: Array) -> Array:
        """The gaps of all contacts (n,), those of this kind filled in, but for what is far apart."""
        ...

    def each(self, kept: Any, body: Callable[[Array, Any], Any], state: Any) -> Any:
        """The state after `body(i, state)` for each contact i of the kind that is not far apart."""
        ...

    def motion(self, moving: Any, kept: Any, i: Array) -> ContactMotion:
        """Contact i of the kind, where it is looked for at the instant of the motion."""
        ...

    def acceleration(self, moving: Any, kept: Any, i: Array) -> Array:
        """How fast the rate of the gap of contact i changes."""
        ...

    def rows(self, moving: Any, kept: Any, i: Array) -> Any:
        """The rows of contact i of the kind."""
        ...

    def write(self, rows: Any, J: SparseRows, k: Array, row: Array) -> SparseRows:
        """J with the rows of contact k of a list, from row `row` on."""
        ...

    def drift(self, rows: Any) -> Float[Array, " rows"]:
        """Contact velocities at rest: of gaps that time changes. Without a normal row the first is zero."""
        ...


@final
class FunctionKind:
    """The contacts of one constraint whose functions say all of them at once.

    - `of`: the constraint.

    **Arguments:**

    - `constraint`: the constraint.
    - `system`: whose it is.
    - `first`: the number of its first contact.
    - `shape`: how many contacts, tangential rows and velocities.
    """

    seeks = is_thin = False  # of a function it is not known how thin a body is

    def __init__(
        self, constraint: AbstractUnilateral, system: AbstractSystem, first: int, shape: tuple[int, int, int]
    ):
        self.of, self._system = constraint, system
        count, self.tangents, self.width = shape
        self.contacts = tuple(range(first, first + count))
        self.has_gap = isinstance(constraint, Unilateral)

    def _gaps(self, t: Array, q: Array) -> Array:
        return (
            self.of.gaps(t, q) if isinstance(self.of, Unilateral) else jnp.zeros(len(self.contacts), q.dtype)
        )

    def _velocities(self, t: Array, q: Array, v: Array) -> Array:
        """(k, 1 + d); of dry friction the first is zero."""
        c = self.of
        if isinstance(c, DryFriction):
            rates = c.rates(t, q, v)[:, None]
            return jnp.concatenate([jnp.zeros_like(rates), rates], axis=1)
        assert isinstance(c, Unilateral)
        rate = jax.jvp(c.gaps, (t, q), (jnp.ones_like(t), self._system.kinematics(t, q, v)))[1]
        return jnp.concatenate([rate[:, None], slips(c, rate.size, t, q, v)], axis=1)

    def moving(self, motion: Motion) -> tuple[Array, ContactMotion, Array, Array]:
        (_, v, q_rate, a), t, q = motion, motion.at.t, motion.at.q
        along = (jnp.ones_like(t), q_rate, a)
        rate = jax.jvp(lambda *y: self._velocities(*y)[:, 0], (t, q, v), along)[1]
        J = jax.jacfwd(self._velocities, argnums=2)(t, q, v)
        drift = self._velocities(t, q, jnp.zeros_like(v))
        most = lambda x: jnp.abs(J[:, 0]) @ jnp.abs(x)
        own = ContactMotion(self._gaps(t, q), most(v) + jnp.abs(drift[:, 0]), most(a))
        return rate, own, J.reshape(-1), drift.reshape(-1)

    def everywhere(self) -> "FunctionKind":
        return self

    def nothing(self, at: Instant) -> None:
        return None

    def unsought(self, at: Instant, before: None) -> None:
        return None

    def seek(self, at: Instant, unsought: None) -> None:
        return None

    def share_without_passing(self, instants: Sequence[Instant], before: None, after: None) -> Array:
        return jnp.ones_like(instants[0].t)

    def gaps(self, at: Instant, kept: None, so_far: Array) -> Array:
        gaps = self._gaps(at.t, at.q)
        for i, k in enumerate(self.contacts):
            so_far = put(so_far, k, gaps[i])
        return so_far

    def each(self, kept: None, body: Callable[[Array, Any], Any], state: Any) -> Any:
        return loop(len(self.contacts), body, state)

    def motion(self, moving: Any, kept: None, i: Array) -> ContactMotion:
        return ContactMotion(*(entry(x, i) for x in moving[1]))

    def acceleration(self, moving: Any, kept: None, i: Array) -> Array:
        return entry(moving[0], i)

    def rows(self, moving: Any, kept: None, i: Array) -> Any:
        return (*moving[2:], i)

    def write(self, rows: Any, J: SparseRows, k: Array, row: Array) -> SparseRows:
        own, _, i = rows
        each, v, first = 1 + self.tangents, self.width, int(not self.has_gap)

        def column(j: Array, J: SparseRows) -> SparseRows:
            return J.add(k, row, j, [entry(own, (i * each + a) * v + j) for a in range(first, each)])

        return loop(v, column, J.begin(k))

    def drift(self, rows: Any) -> Array:
        _, drift, i = rows
        width = 1 + self.tangents
        return jnp.stack([entry(drift, i * width + a) for a in range(width)])


def kinds_of_constraint(
    c: AbstractUnilateral, system: AbstractSystem, first: int, t: Array, q: Array, v: Array
) -> list[ContactKind]:
    """The contacts of one constraint by kinds, numbered from `first` on."""
    if (made := getattr(getattr(c, "fn", None), "kinds", None)) is not None:
        return made(first)
    return [FunctionKind(c, system, first, (*size_of_constraint(c, t, q, v), v.size))]


def size_of_constraint(c: AbstractUnilateral, t: Array, q: Array, v: Array) -> tuple[int, int]:
    """How many contacts a constraint has, and how many tangential rows each of them."""
    if (size := getattr(getattr(c, "fn", None), "size", None)) is not None:
        return size
    if isinstance(c, DryFriction):
        return jax.eval_shape(c.rates, t, q, v).shape[0], 1
    assert isinstance(c, Unilateral)
    count = jax.eval_shape(c.gaps, t, q).shape[0]
    return count, jax.eval_shape(lambda *y: slips(c, count, *y), t, q, v).shape[1]


@final
class KnownKinds(eqx.Module):
    """Contacts by kinds, of which those of shapes are arrays, and no longer of a system.

    - `shapes`: kinds of shapes.
    - `functions`: of each kind, in order, None for one of shapes, else which of all contacts its first is.
    """

    shapes: tuple[Any, ...]
    functions: tuple[int | None, ...] = eqx.field(static=True)


def known_kinds(system: AbstractSystem, t: Array, q: Array, v: Array) -> KnownKinds | None:
    """The contacts of a system that has values, apart from `system.without_shapes()`; else none."""
    if is_traced(system):
        return None
    kinds = kinds_of(system, None, t, q, v)
    firsts = [x.contacts[0] if isinstance(x, FunctionKind) else None for x in kinds]
    return KnownKinds(tuple(x for x in kinds if not isinstance(x, FunctionKind)), tuple(firsts))


def kinds_of(
    system: AbstractSystem, known: KnownKinds | None, t: Array, q: Array, v: Array
) -> list[ContactKind]:
    """The contacts of a system by kinds; of one without shapes with what is known of these."""
    constraints = unilateral(system.constraints)
    if known is not None:
        shapes, functions = iter(known.shapes), iter(constraints)
        make = lambda first: kinds_of_constraint(next(functions), system, first, t, q, v)[0]
        return [next(shapes) if first is None else make(first) for first in known.functions]
    kinds, first = list[ContactKind](), 0
    for c in constraints:
        own = kinds_of_constraint(c, system, first, t, q, v)
        kinds += own
        first += sum(len(x.contacts) for x in own)
    return kinds


def seek_anew(kind: ContactKind, at: Instant) -> Any:
    """Where contacts are at an instant, of which nothing is known."""
    return kind.seek(at, kind.unsought(at, kind.nothing(at)))
