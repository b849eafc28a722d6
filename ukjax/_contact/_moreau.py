"""One time step with contacts in a list, by loops; see `_stepping` for the equations.

A step solves several problems of contacts, one after the other in one loop: the first is that of velocities, of the
contacts that would close by its middle; the others push positions out of contacts (`_penetration`), of those that
penetrate at its end.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from .._formula._contact_list import (
    ContactList,
    Inertia,
    Room,
    copy_entries,
    empty_list,
    entry,
    fill_entries,
    loop,
    put,
)
from .._formula._contact_operator import DelassusRows, delassus, empty_workspace, find_islands
from .._formula._contact_solver import ROUNDING, ImpulseSolution, solve
from .._misc._blank import blank
from .._misc._types import choose_by_precision
from ._ambiguous import ListedImpulses, ambiguous
from ._kinds import ContactKind, Instant, Motion, seek_anew
from ._penetration import PENETRATES, PENETRATION, TRIES
from ._rows import Coefficients, ContactLayout
from ._solve import tolerance_of
from ._step_states import ContactSet, FreeStep, StepContacts, StepRecord, StepState

# A contact bounces if it closes faster than so many times the change of speed that forces make within a step: not once,
# as other contacts of a body add to it. A rod held at one end falls at the other 1.5 times as fast as freely.
SLOW = 3.0
_USUAL_ROOM = 256  # of contacts at once, and two for each velocity: boxes in a pile have one or two for each
FARTHEST = 100.0  # that a coordinate is pushed, beside how far the worst gap was off [m/m], [rad/m]


def contacts_at_once(layout: ContactLayout, velocities: int) -> int:
    """For how many contacts at once there is room. Where more touch a run ends, or is made anew with more room."""
    return min(len(layout.contacts), layout.room or _USUAL_ROOM + 2 * velocities)


class _Problems(NamedTuple):
    """The problems of a step, one after the other.

    - `state`: what it leaves so far.
    - `q`: where the next is.
    - `kept`: of each kind where contacts are, as far as that is sought.
    - `seeks`: whether it is sought anew.
    - `takes_part`: 1 for contacts of the next problem (n,).
    - `middle`: gaps in the middle (n,).
    - `gaps`: at the end (n,).
    - `deepest`, `left`: how far the worst gap was off since the first one at the end, and at last.
    - `push`: impulses of positions (n,), known of contacts that are not far apart.
    - `base`, `d`: displacements before these impulses, and with what they add.
    - `projected`: velocities at the end on the bilateral rows.
    - `number`: how many were solved.
    - `going`: whether there is another.
    - `pushed`: impulses of positions up to `base` (n,).
    - `middle_kept`, `end_kept`: what was kept in the middle, and when contacts were last pushed.
    """

    state: StepState
    q: Array
    kept: list[Any]
    seeks: Array
    takes_part: Array
    middle: Array
    gaps: Array
    deepest: Array
    left: Array
    push: Array
    base: Array
    d: Array
    projected: Array
    number: Array
    going: Array
    pushed: Array
    middle_kept: list[Any]
    end_kept: list[Any]


@final
class ContactStep:
    """A step of Moreau's scheme with contacts of some kinds.

    **Arguments:**

    - `kinds`: of all contacts.
    - `layout`: of their rows.
    - `velocities`: how many there are.
    - `free`: a `FreeStep` from t, q, v and the step.
    - `arrive`: state (q, v) at the end from positions, v + v+, v+, displacements d, time, step and the free step, on the
      bilateral rows; and whether it is off them.
    - `kinematics`: q' from t, q and v.
    """

    def __init__(
        self,
        kinds: Sequence[ContactKind],
        layout: ContactLayout,
        velocities: int,
        free: Callable[..., FreeStep],
        arrive: Callable[..., tuple[tuple[Array, Array], Array]],
        kinematics: Callable[[Array, Array, Array], Array],
    ):
        self.kinds, self.layout = kinds, layout
        self.seeks = any(kind.seeks for kind in kinds)
        self.passes = any(kind.is_thin for kind in kinds)
        self.free, self.arrive, self.kinematics = free, arrive, kinematics
        columns = max((kind.width for kind in kinds), default=0)
        sizes = [int(normal) + tangents for normal, tangents in layout.contacts]
        self.starts, self.sizes, self.rows = np.cumsum([0, *sizes])[:-1], np.array(sizes, int), sum(sizes)
        at_once = contacts_at_once(layout, velocities)
        self.may_be_full = at_once < len(sizes)
        rows = sum(sorted(sizes)[len(sizes) - at_once :])
        most = max((tangents for _, tangents in layout.contacts), default=0)
        self.room = Room(at_once, rows, most, velocities, columns)

    def _gaps(self, kinds: Sequence[ContactKind], at: Instant, kept: Sequence[Any], gaps: Array) -> Array:
        """Gaps (n,) with those of contacts that are not far apart, and have one."""
        for kind, own in zip(kinds, kept, strict=True):
            if kind.has_gap:
                gaps = kind.gaps(at, own, gaps)
        return gaps

    def nothing_found(self, t: Array, q: Array) -> list[Any]:
        """What is found of contacts before any gaps are."""
        return [lax.stop_gradient(kind.everywhere().nothing(Instant(t, q))) for kind in self.kinds]

    def gaps_at(self, t: Array, q: Array, before: Sequence[Any]) -> tuple[Array, list[Any]]:
        """The gaps of all contacts (n,), also of those far apart, and what was found, from what was found before."""
        at, kinds = Instant(t, q), [kind.everywhere() for kind in self.kinds]
        found = [kind.seek(at, kind.unsought(at, x)) for kind, x in zip(kinds, before, strict=True)]
        n = len(self.layout.contacts)
        gaps = self._gaps(kinds, at, found, fill_entries(blank(n, q.dtype), 0, 0, n))
        return gaps, lax.stop_gradient(found)

    def before(self, t: Array, q: Array, v: Array) -> StepState:
        """What there is before a first step."""
        at = Instant(t, q)
        zero, n = jnp.zeros((), q.dtype), len(self.layout.contacts)
        kept = [seek_anew(kind, at) for kind in self.kinds]
        gaps = self._gaps(self.kinds, at, kept, blank(n, q.dtype))
        return StepState(
            *(q, v, self.no_contacts(q.dtype), no := jnp.asarray(False), jnp.zeros_like(v)),
            *(zero, zero, no, no, jnp.full((), jnp.inf, q.dtype), self._touching(gaps, kept), kept),
        )

    def no_contacts(self, dtype: jnp.dtype) -> StepContacts:
        """A list without contacts."""
        n, rows, none = max(self.room.contacts, 1), int(max(self.sizes, default=1)), jnp.asarray(0)
        new = lambda: blank(n, dtype)
        return StepContacts(none, blank(n, none.dtype), blank(n * rows, dtype), new(), new(), new(), new())

    def no_record(self, state: StepState) -> StepRecord:
        """What there is of no step."""
        push = jnp.zeros(self.rows + 1, state.q.dtype)
        return StepRecord(push, jnp.zeros_like(state.v), state.kept, state.kept)

    def over_rows(self, of: StepContacts, body: Callable[..., Any], state: Any) -> Any:
        """The state after `body(j, at, i, state)` for each row i of all, where its impulse is at `at`, of contact j."""
        return of.over_rows(jnp.asarray(self.starts), jnp.asarray(self.sizes), body, state)

    def share_without_passing(
        self, t: Array, h: Array, last: StepState, after: StepState, kept: Sequence[Any]
    ) -> Array:
        """How much of a step may be taken so that bodies which it takes through each other overlap by little, in its
        middle, where contacts are looked for, and at its end: from 0 to 1, where none does. By what was kept before it,
        and after it."""
        if not self.passes:
            return jnp.ones_like(h)
        middle = last.q + 0.5 * h * self.kinematics(t, last.q, last.v)
        # Before it was pushed out of contacts, which hides how deep it was.
        end = last.q + 0.5 * h * self.kinematics(t + 0.5 * h, middle, last.v + after.v)
        instants = Instant(t, last.q), Instant(t + 0.5 * h, middle), Instant(t + h, end)
        own = zip(self.kinds, kept, after.kept, strict=True)
        shares = [kind.share_without_passing(instants, *kept) for kind, *kept in own if kind.is_thin]
        return jnp.min(jnp.stack(shares))

    def __call__(
        self,
        t: Array,
        h: Array,
        last: StepState,
        coefficients: Coefficients,
        looks: Array,
        into: StepContacts,
    ) -> tuple[StepState, StepRecord]:
        """The state after a step of length h from time t; with push and ambiguous contacts where it `looks` at them. The
        list of contacts is written into another one."""
        q, v, dtype = last.q, last.v, last.q.dtype
        free = self.free(t, q, v, h)
        n = len(self.layout.contacts)
        former, touching = self._places_of(last.contacts), self._places_of(last.touching)
        none, pushed = jnp.asarray(0), jnp.zeros(n, dtype)
        contacts = into._replace(number=none)
        state = last._replace(contacts=contacts, hit=jnp.asarray(False), kept=[])
        no, yes, new = jnp.zeros_like(v), jnp.asarray(True), lambda: blank(n, dtype)
        start = _Problems(
            *(state, free.q, last.kept, yes, new(), new(), new(), zero := jnp.zeros((), dtype), zero),
            *(new(), no, no, v, none, yes, pushed, last.kept, last.kept),
        )

        def solved(x: _Problems, moving: list[Any]) -> _Problems:
            first = x.number == 0
            looked = (looks & first).astype(x.number.dtype)
            before = v, free.end, (last.contacts, former), (last.touching, touching)
            contacts, (struck, stands), full = self._listed(moving, before, h, coefficients, x, first)
            # Slips of joints that stand still are rounding, of the velocities of all.
            rounding = ROUNDING * jnp.finfo(dtype).eps * jnp.max(jnp.abs(free.end))
            enough = jnp.where(first, rounding, 0.1 * choose_by_precision(dtype, *PENETRATION))
            found, told = self._solve_islands(
                contacts, x.state, free.inertia, coefficients, h, enough, (looked, stands)
            )
            state, push = self._scattered(contacts, struck, found, told[1], x, first)
            v_end = jnp.where(first, free.end + found.change, state.v)
            # What a stop or a loop holds can hardly be pushed: no coordinate moves by far more than what is to be mended.
            more = found.change - (x.d - x.base)
            far = jnp.max(jnp.abs(more)) / (FARTHEST * jnp.maximum(x.deepest, jnp.finfo(dtype).tiny))
            d = jnp.where(first, 0, x.d + more / jnp.maximum(far, 1))
            (q_end, projected), off = self.arrive(q, v + v_end, v_end, d, t, h, free)
            state = state._replace(
                q=q_end,
                v=v_end,
                push=told[0],
                residual=jnp.where(full, jnp.inf, jnp.where(first, found.residual, state.residual)),
                solver_steps=jnp.where(first, found.steps, state.solver_steps),
                off=off,
            )
            return x._replace(state=state, q=q_end, push=push, d=d, projected=projected)

        def look(x: _Problems) -> _Problems:
            """In the middle, where the problem of velocities is, then at the end."""
            first = x.number == 0
            time = jnp.where(first, free.t, t + h)

            at = Instant(time, x.q)
            whole = lambda yes: yes.astype(x.number.dtype)
            kept = x.kept
            if self.seeks:
                for kind, own in zip(self.kinds, kept, strict=True):
                    kind.unsought(at, own)  # so that bodies are located for all that follows
                seek = lambda kind, own: kind.seek(at, kind.unsought(at, own))
                kept = loop(whole(x.seeks), lambda _, kept: list(map(seek, self.kinds, kept)), kept)
            push = loop(whole(x.seeks), lambda _, push: self._without_push(push, kept), x.push)
            # Of contacts that are far apart nothing is read.
            gaps = loop(whole(~first), lambda _, gaps: self._gaps(self.kinds, at, kept, gaps), x.gaps)
            x = x._replace(
                kept=kept,
                gaps=gaps,
                push=push,
                middle_kept=loop(whole(first), lambda _, former: kept, x.middle_kept),
            )
            takes_part, worst = loop(
                whole(~first),
                lambda _, y: self._penetrating(y[0], gaps, x.push, kept),
                (x.takes_part, jnp.zeros((), dtype)),
            )
            pushes = ~first & (worst > choose_by_precision(dtype, *PENETRATION)) & (x.number <= TRIES)
            # Once what was sought before bodies were pushed has them apart, it is sought anew.
            again = ~(first | pushes | x.seeks) if self.seeks else jnp.asarray(False)
            pushed = loop(whole(again), lambda _, y: self._add_push(y, x.push, kept), x.pushed)
            x = x._replace(
                takes_part=takes_part,
                deepest=jnp.where(first, 0, jnp.maximum(x.deepest, worst)),
                left=jnp.where(first, 0, worst),
                going=first | pushes | again,
                seeks=first | again,
                base=jnp.where(again, x.d, x.base),
                pushed=pushed,
                end_kept=loop(whole(pushes), lambda _, former: kept, x.end_kept),
            )

            # How bodies move is only computed where there is a problem, once.
            def solve(_: Array, x: _Problems) -> _Problems:
                motion = Motion(Instant(time, x.q), free.v, self.kinematics(time, x.q, free.v), free.a)
                moving = [kind.moving(motion) for kind in self.kinds]
                near = lambda _, x: self._near(moving, h, x, (last.touching, touching))
                return solved(loop(whole(first), near, x), moving)

            x = loop(whole(first | pushes), solve, x)
            return x._replace(number=x.number + 1)

        end = lax.while_loop(lambda x: x.going, look, start)
        pushed = self._add_push(end.pushed, end.push, end.kept)
        starts = jnp.asarray(self.starts)
        on_rows = lambda k, x: put(x, entry(starts, k), entry(pushed, k))
        push = loop(n, on_rows, jnp.zeros(self.rows + 1, dtype))
        record = StepRecord(push, end.d, end.middle_kept, end.end_kept)
        left = lax.stop_gradient(end.left)
        state = end.state._replace(
            v=end.projected,
            kept=end.kept,
            deep=left > last.depth + choose_by_precision(dtype, *PENETRATES),
            depth=jnp.minimum(last.depth, left),
            touching=self._touching(end.gaps, end.kept),
        )
        return state, record

    def _touching(self, gaps: Array, kept: Sequence[Any]) -> ContactSet:
        """Rigid contacts whose gaps are zero, and of those beyond the room one."""
        is_rigid, none = jnp.asarray(self.layout.is_rigid), jnp.asarray(0)
        # To how much gaps are zero by steps.
        zero = 2 * choose_by_precision(gaps.dtype, *PENETRATION)

        def look(i: Array, so_far: ContactSet, kind: Any, which: Array) -> ContactSet:
            if not kind.has_gap:
                return so_far
            k = entry(which, i)
            touches = entry(is_rigid, k) & (entry(gaps, k) <= zero) & (so_far.number <= self.room.contacts)
            number = so_far.number + touches.astype(i.dtype)
            return ContactSet(number, put(so_far.contact, so_far.number, k))

        return self._over_near(look, kept, ContactSet(none, blank(self.room.contacts + 2, none.dtype)))

    def _near(
        self, moving: Sequence[Any], h: Array, x: _Problems, touching: tuple[ContactSet, Array]
    ) -> _Problems:
        """With the contacts that may close by the middle of the next step, or have no gap.

        Rigid ones are those whose bodies are no farther apart than the ways of both until then: impulses elsewhere may
        stop one of them, as the lower bodies of a stack, or turn it, as a box that rocks. Soft ones touch as the step
        begins, or close by its middle.
        """
        dtype = x.q.dtype
        zero = choose_by_precision(dtype, *PENETRATION)
        is_rigid, found = jnp.asarray(self.layout.is_rigid), (x.takes_part, x.middle)
        for kind, of, own in zip(self.kinds, moving, x.kept, strict=True):
            which = jnp.asarray(np.array(kind.contacts))

            def look(i: Array, so_far: tuple, of: tuple = (kind, of, own, which)) -> tuple:
                kind, moving, own, which = of
                k, (gap, speed, gain) = entry(which, i), kind.motion(moving, own, i)
                near = jnp.asarray(True)
                if kind.has_gap:
                    # So that one that is NaN takes part: the run is to end there.
                    near = ~(gap > 2 * zero + h * (speed + 0.5 * h * gain))
                    if self.layout.soft:
                        soft = (~entry(is_rigid, k)).astype(i.dtype)
                        change = lambda _, x: kind.acceleration(moving, own, i)
                        closes = ~(gap + 0.125 * h * h * loop(soft, change, jnp.zeros_like(gap)) > 2 * zero)
                        near = jnp.where(soft > 0, closes | self._find(touching, k)[0], near)
                return tuple(put(a, k, y) for a, y in zip(so_far, (near, gap), strict=True))

            found = kind.each(own, look, found)
        return x._replace(takes_part=found[0], middle=found[1])

    def _listed(
        self,
        moving: Sequence[Any],
        before: tuple[Array, Array, tuple[StepContacts, Array], tuple[ContactSet, Array]],
        h: Array,
        coefficients: Coefficients,
        x: _Problems,
        first: Array,
    ) -> tuple[ContactList, tuple[Array, ...], Array]:
        """The contacts of a problem; 1 for those that are struck fast, and for those that touch as the step begins and do
        not part; and whether there were more than there is room for; by velocities before and without impulses, contacts
        before, and those that touch as the step begins.

        A contact that is open in the middle may close until the next middle, a step later, where positions are by the
        velocities to be found: its gap there is not to be negative. One that bounces closes by its middle or not at all.
        """
        v_before, v_free, former, touching = before
        zero = choose_by_precision(x.gaps.dtype, *PENETRATION)
        dtype, width = x.gaps.dtype, former[0].p.size // former[0].contact.size
        is_rigid = jnp.asarray(self.layout.is_rigid.astype(float), dtype)

        def row(
            kind: Any, of: Any, own: Any, i: Array, k: Array, contacts: ContactList
        ) -> tuple[ContactList, tuple[Array, Array]]:
            rows, row, normals = kind.rows(of, own, i), contacts.rows, int(kind.has_gap)
            laws = coefficients.friction, coefficients.limit, coefficients.restitution
            mu, c, e = (entry(a, k) for a in laws)
            rough = first & ((mu > 0) | (c > 0))
            at = contacts.number
            J, drift = kind.write(rows, contacts.J, at, row), kind.drift(rows)

            def moved(c: Array, j: Array, so_far: tuple) -> tuple:
                own = [entry(J.values, (row + a) * J.room + c) for a in range(normals + kind.tangents)]
                before, free = so_far[0], so_far[1:]
                more = [x + y * entry(v_free, j) for x, y in zip(free, own, strict=True)]
                return before + own[0] * entry(v_before, j), *more

            at_rest = drift[0], *(drift[1 - normals + a] for a in range(normals + kind.tangents))
            before, *free = J.over_columns(at, moved, at_rest)
            rigid, open_by = entry(is_rigid, k) > 0, entry(x.middle, k)
            fast = restores = jnp.asarray(False)
            wanted, touches = jnp.ones_like(at), self._find(touching, k)[0]
            if normals:
                # Also what parts fast: all contacts have one law, or impulses on what parts would create energy.
                is_fast = lambda forced: jnp.abs(before) > SLOW * jnp.abs(forced)
                may_bounce = first & rigid & is_fast(free[0] - before)
                change = lambda _, x: h * kind.acceleration(of, own, i)
                # With the changes of rows, which what moves along curved bodies feels.
                forced = loop(may_bounce.astype(at.dtype), change, jnp.zeros_like(h))
                bounces = may_bounce & is_fast(forced)
                fast, restores = bounces & (before < 0), bounces & (e > 0)
                closes = open_by + 0.125 * h * forced <= 2 * zero
                wanted = (~restores | closes | touches).astype(at.dtype)
            u, p, (was, place) = contacts.u, contacts.p, self._find(former, k)
            of_former = lambda a: jnp.where(was, entry(former[0].p, place * width + a), 0)
            guess = lambda a: jnp.where(first, of_former(a), 0 if a else entry(x.push, k))
            if normals:
                less = lambda c, j, gap: (
                    gap - entry(J.values, row * J.room + c) * (entry(x.d, j) - entry(x.base, j))
                )
                gap = J.over_columns(at, less, entry(x.gaps, k))
                ahead = jnp.where(rigid, jnp.maximum(open_by, 0) / h, 0)
                after = free[0] + jnp.where(restores, e * before, ahead)
                if self.layout.soft:
                    after = after + entry(coefficients.soften(h)[1], k) * entry(x.middle, k)
                u = put(u, row, jnp.where(first, after, gap))
                p = put(p, row, guess(0))
            for a in range(kind.tangents):
                u = put(u, row + normals + a, free[normals + a])
                p = put(p, row + normals + a, guess(normals + a))
            tangents = jnp.where(rough, kind.tangents, 0)
            contacts = contacts._replace(
                contact=put(contacts.contact, at, k),
                row=put(contacts.row, at, row),
                normals=put(contacts.normals, at, normals),
                tangents=put(contacts.tangents, at, tangents),
                friction=put(contacts.friction, at, jnp.where(first, mu, 0)),
                limit=put(contacts.limit, at, jnp.where(first, c * h, 0)),
                J=J,
                u=u,
                p=p,
                number=at + wanted,
                rows=row + wanted * (normals + tangents),
            )
            return contacts, (fast, touches & (before <= SLOW * jnp.abs(free[0] - before)))

        def of_kind(kind: Any, of: Any, own: Any, listed: tuple) -> tuple:
            which = jnp.asarray(np.array(kind.contacts))

            def look(i: Array, so_far: tuple) -> tuple:
                k = entry(which, i)

                def add(_: Array, so_far: tuple) -> tuple:
                    listed, marks, full = so_far
                    contacts, found = row(kind, of, own, i, k, listed)
                    marks = tuple(put(x, listed.number, y) for x, y in zip(marks, found, strict=True))
                    return contacts, marks, full

                wanted = entry(x.takes_part, k) > 0
                if not self.may_be_full:
                    return loop(wanted.astype(i.dtype), add, so_far)
                fits = so_far[0].number < self.room.contacts
                so_far = loop((wanted & fits).astype(i.dtype), add, so_far)
                return *so_far[:2], so_far[2] | (wanted & ~fits)

            return kind.each(own, look, listed)

        full = touching[0].number > self.room.contacts
        marks = tuple(blank(max(self.room.contacts, 1), dtype) for _ in range(2))
        listed = empty_list(self.room, dtype), marks, full
        for kind, of, own in zip(self.kinds, moving, x.kept, strict=True):
            listed = of_kind(kind, of, own, listed)
        return listed

    def soften(
        self, of: DelassusRows, contacts: ContactList, coefficients: Coefficients, h: Array
    ) -> DelassusRows:
        """The operator with what springs and dampers of contacts give way."""
        if not self.layout.soft:
            return of
        soft = coefficients.soften(h)[0]

        def add(k: Array, G: Array) -> Array:
            place = entry(contacts.row, k) * (of.width + 1)
            return put(G, place, entry(G, place) + entry(soft, entry(contacts.contact, k)))

        return of._replace(G=loop(contacts.number, add, of.G))

    def _places_of(self, of: StepContacts | ContactSet) -> Array:
        """Of each contact of a list its place there (n,); what it says of others means nothing, see `_find`."""
        place = lambda j, x: put(x, entry(of.contact, j), j)
        return loop(of.number, place, blank(len(self.layout.contacts), of.contact.dtype))

    def _find(self, former: tuple[StepContacts | ContactSet, Array], k: Array) -> tuple[Array, Array]:
        """Whether contact k is in a list, and its place there, or any."""
        of, places = former
        place = entry(places, k)
        place = jnp.where((place >= 0) & (place < of.number), place, 0)
        return (of.number > 0) & (entry(of.contact, place) == k), place

    def _scattered(
        self,
        solved: ContactList,
        struck: Array,
        found: ImpulseSolution,
        flags: Array,
        x: _Problems,
        first: Array,
    ) -> tuple[StepState, Array]:
        """What a problem leaves: of velocities the state, of positions their impulses in the places of all contacts."""
        state = x.state
        of_first = lambda count: jnp.where(first, count, 0)

        def put_push(k: Array, push: Array) -> Array:
            return put(push, entry(solved.contact, k), entry(found.p, entry(solved.row, k)))

        # Nothing is cleared before: what was pushed is in the list again.
        push = loop(solved.number - of_first(solved.number), put_push, x.push)
        own = state.contacts
        width = own.p.size // own.contact.size

        def place(k: Array, so_far: tuple) -> tuple:
            contact, p, *modes = so_far
            row, size = entry(solved.row, k), entry(solved.normals, k) + entry(solved.tangents, k)
            # Rows of friction that is zero take no part.
            p = loop(width, lambda a, p: put(p, k * width + a, 0), p)
            p = loop(size, lambda a, p: put(p, k * width + a, entry(found.p, row + a)), p)
            is_closed = entry(found.closed, k)
            values = is_closed, entry(found.sliding, k), is_closed * entry(struck, k)
            *modes, hit = modes
            modes = [put(a, k, y) for a, y in zip(modes, values, strict=True)]
            return put(contact, k, entry(solved.contact, k)), p, *modes, hit | (values[-1] > 0)

        so_far = own.contact, own.p, own.closed, own.sliding, own.struck, state.hit
        contact, p, closed, sliding, struck_now, hit = loop(of_first(solved.number), place, so_far)
        number = jnp.where(first, solved.number, own.number)
        own = StepContacts(number, contact, p, closed, sliding, struck_now, flags)
        return state._replace(contacts=own, hit=hit), push

    def _penetrating(
        self, takes_part: Array, gaps: Array, push: Array, kept: Sequence[Any]
    ) -> tuple[Array, Array]:
        """1 for rigid contacts that penetrate, are pushed, or may penetrate once others are pushed (n,); and how far the
        worst of them is off.

        Bodies move by about as much as the worst contact is off. So all take part that are no farther apart: a column of
        bodies that has sunk into the floor is pushed at once, and not one body after the other.
        """
        is_rigid = jnp.asarray(self.layout.is_rigid)

        def find_worst(i: Array, worst: Array, kind: Any, which: Array) -> Array:
            k = entry(which, i)
            gap = jnp.where(entry(is_rigid, k) & kind.has_gap, entry(gaps, k), 0)
            return jnp.maximum(worst, jnp.where(entry(push, k) > 0, jnp.abs(gap), -gap))

        worst = self._over_near(find_worst, kept, jnp.zeros((), gaps.dtype))

        def mark(i: Array, takes_part: Array, kind: Any, which: Array) -> Array:
            k = entry(which, i)
            reached = (entry(push, k) > 0) | (entry(gaps, k) <= worst)
            return put(takes_part, k, entry(is_rigid, k) & kind.has_gap & reached)

        return self._over_near(mark, kept, takes_part), worst

    def _without_push(self, push: Array, kept: Sequence[Any]) -> Array:
        """Without the impulses of positions, which only contacts have that are not far apart."""
        clear = lambda i, push, which, **_: put(push, entry(which, i), 0)
        return self._over_near(clear, kept, push)

    def _add_push(self, pushed: Array, push: Array, kept: Sequence[Any]) -> Array:
        """With these impulses of positions added."""
        add = lambda i, x, which, **_: put(
            x, entry(which, i), entry(x, entry(which, i)) + entry(push, entry(which, i))
        )
        return self._over_near(add, kept, pushed)

    def _over_near(self, body: Callable[..., Any], kept: Sequence[Any], state: Any) -> Any:
        """The state after `body(i, state, kind, which)` for each contact i of a kind that is not far apart."""
        for kind, own in zip(self.kinds, kept, strict=True):
            which = jnp.asarray(np.array(kind.contacts))
            state = kind.each(own, functools.partial(body, kind=kind, which=which), state)
        return state

    def _solve_islands(
        self,
        contacts: ContactList,
        state: StepState,
        inertia: Inertia,
        coefficients: Coefficients,
        h: Array,
        enough: Array,
        looks: tuple[Array, Array],
    ) -> tuple[ImpulseSolution, tuple[Array, Array]]:
        """The impulses of the contacts of a list; and where it is looked at the generalized force, and 1 for contacts
        that are ambiguous, of those that stand."""
        looked, stands = looks
        room, dtype = self.room, contacts.u.dtype
        by_row, by_contact = (lambda: blank(room.stride, dtype)), lambda: blank(max(room.contacts, 1), dtype)
        zero, islands = jnp.zeros((), dtype), find_islands(contacts, room, inertia)
        none = ImpulseSolution(
            by_row(), jnp.zeros(room.velocities, dtype), by_contact(), by_contact(), zero, zero
        )
        clear = lambda x, count: fill_entries(x, 0, 0, looked * count)

        def of_island(i: Array, so_far: tuple) -> tuple:
            found, told, space = so_far
            begin = entry(islands.begin, i)
            own = islands.take(i, contacts, room)
            of, space = delassus(own, room, inertia, space)
            of = self.soften(of, own, coefficients, h)
            its = solve(own, room, of, tolerance_of(dtype), enough, found.change)

            def look(_: Array, told: tuple[Array, Array]) -> tuple[Array, Array]:
                places = lambda k: entry(islands.order, begin + k)
                return self._looked_at(own, its, of, h, told, places, stands)

            told = loop(looked, look, told)

            def place(k: Array, so_far: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
                to = entry(islands.order, begin + k)
                p, closed, sliding = so_far
                row, of_row = entry(contacts.row, to), entry(own.row, k)
                size = entry(own.normals, k) + entry(own.tangents, k)
                p = loop(size, lambda a, p: put(p, row + a, entry(its.p, of_row + a)), p)
                return p, put(closed, to, entry(its.closed, k)), put(sliding, to, entry(its.sliding, k))

            p, closed, sliding = loop(own.number, place, (found.p, found.closed, found.sliding))
            worst, most = jnp.maximum(found.residual, its.residual), jnp.maximum(found.steps, its.steps)
            return ImpulseSolution(p, its.change, closed, sliding, worst, most), told, space

        space = empty_workspace(room, inertia, dtype)
        told = clear(state.push, room.velocities), clear(state.contacts.ambiguous, contacts.number)
        start = none, told, space
        return loop(islands.number, of_island, start)[:2]

    def _looked_at(
        self,
        contacts: ContactList,
        found: ImpulseSolution,
        of: DelassusRows,
        h: Array,
        told: tuple[Array, Array],
        places: Callable[[Array], Array],
        stands: Array,
    ) -> tuple[Array, Array]:
        """With the generalized force of the contacts of an island (n_v,), and 1 for those that are ambiguous, in their
        places of the whole list."""
        add = lambda k, i, push: contacts.J.add_row(k, i, entry(found.p, i) / h, push)
        push = contacts.over_rows(add, told[0])
        u = copy_entries(blank(self.room.stride, contacts.u.dtype), contacts.u, contacts.rows)
        u = of.apply(u, found.p)
        contacts, may_stay = contacts._replace(u=u, p=found.p), lambda k: entry(stands, places(k)) > 0
        flags = ambiguous(ListedImpulses(contacts, self.room, of, found, self.rows, may_stay))
        place = lambda k, y: put(y, places(k), entry(flags, k))
        return push, loop(contacts.number, place, told[1])
