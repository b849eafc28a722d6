"""What a time step with contacts begins from and leaves."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Array

from .._formula._contact_list import Inertia, copy_entries, entry, loop


class FreeStep(NamedTuple):
    """A step without impulses.

    - `t`, `q`: its middle.
    - `v`, `a`: velocities there, and accelerations.
    - `end`: velocities at its end.
    - `inertia`: what impulses change velocities by.
    """

    t: Array
    q: Array
    v: Array
    a: Array
    end: Array
    inertia: Inertia


class StepContacts(NamedTuple):
    """What a step leaves of contacts, of those that took part in it: what it costs goes with how many these are.

    - `number`: how many took part.
    - `contact`: which of all contacts each is.
    - `p`: impulses by row; those of each begin at as many times the most rows of a contact.
    - `closed`, `sliding`, `struck`: 1 for those that are closed, slide, and closed fast.
    - `ambiguous`: 1 for ambiguous ones, where it was looked at.
    """

    number: Array
    contact: Array
    p: Array
    closed: Array
    sliding: Array
    struck: Array
    ambiguous: Array

    @property
    def _rows(self) -> int:
        return self.p.size // self.contact.size

    def over_rows(self, starts: Array, sizes: Array, body: Callable[..., Any], state: Any) -> Any:
        """The state after `body(j, at, i, state)` for each row i of all, where its impulse is at `at`, of contact j."""

        def of_contact(j: Array, state: Any) -> Any:
            k = entry(self.contact, j)
            first, own = entry(starts, k), j * self._rows
            return loop(entry(sizes, k), lambda a, state: body(j, own + a, first + a, state), state)

        return loop(self.number, of_contact, state)

    def replace_by(self, other: "StepContacts") -> "StepContacts":
        """With what another has: in its own place, as far as that goes."""
        copy = lambda x, y: copy_entries(x, y, other.number)
        return StepContacts(
            number=other.number,
            contact=copy(self.contact, other.contact),
            p=copy_entries(self.p, other.p, other.number * self._rows),
            closed=copy(self.closed, other.closed),
            sliding=copy(self.sliding, other.sliding),
            struck=copy(self.struck, other.struck),
            ambiguous=copy(self.ambiguous, other.ambiguous),
        )


class ContactSet(NamedTuple):
    """Some of all contacts: how many, and which."""

    number: Array
    contact: Array


class StepState(NamedTuple):
    """What a step leaves.

    - `q`, `v`: the state.
    - `contacts`: of its contacts.
    - `hit`: whether any closed fast.
    - `push`: where it was looked at, the generalized force (n_v,).
    - `residual`, `solver_steps`: of the problem of velocities; an infinite residual if more contacts touch at once than
      there is room for.
    - `off`, `deep`: whether no state near by obeys the bilateral rows; and whether bodies penetrate more than before.
    - `depth`: the least by which they did after a step so far.
    - `touching`: rigid contacts whose gaps are zero.
    - `kept`: of each kind where contacts are, as far as that is sought.
    """

    q: Array
    v: Array
    contacts: StepContacts
    hit: Array
    push: Array
    residual: Array
    solver_steps: Array
    off: Array
    deep: Array
    depth: Array
    touching: ContactSet
    kept: list[Any]


class StepRecord(NamedTuple):
    """What the derivative of a step needs besides what the step leaves.

    - `push`: impulses of positions, on normal rows (m + 1,).
    - `d`: the displacements by these (n_v,).
    - `middle`, `end`: of each kind where contacts were in the middle, and when they were last pushed, as far as that is
      sought.
    """

    push: Array
    d: Array
    middle: list[Any]
    end: list[Any]
