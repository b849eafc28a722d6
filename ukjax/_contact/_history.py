"""What a run tells of its contacts."""

from collections.abc import Sequence
from typing import final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._misc._errors import InputError
from .._misc._modules import LazyModule
from .._misc._types import is_traced

UNSOLVED = (1e-7, 1e-3)
"""Of the scaled problem, in float64 and float32: with a larger residual there is no solution, or none was found."""


AT_TIMES = ("gap", "force", "closed", "sliding", "ambiguous")
"""The fields of a `ContactHistory` that are of saved times."""


def name_rows(
    names: Sequence[str], contacts: Sequence[tuple[bool, int]], turning: Sequence[int]
) -> tuple[str, ...]:
    """What the rows of contacts are called, of which each has a gap or not, and tangential rows, some of turning."""
    found = []
    for name, (normal, tangents), turns in zip(names, contacts, turning or (0,) * len(names), strict=True):
        slides = tangents - turns
        words = ["normal"] * normal + [f"tangent {i + 1}" for i in range(slides)]
        about_normal = slides == 2 and turns % 2 == 1
        rolls = turns - about_normal
        words += ["torsion"] * about_normal
        words += ["rolling"] * rolls if rolls == 1 else [f"rolling {i + 1}" for i in range(rolls)]
        found += [f"{name} {word}" for word in words]
    return tuple(found)


@final
class ContactHistory(LazyModule):
    """The contacts of a run over its k saved times, and what happened at l instants.

    Rows are those of the n contacts one after the other: of each the normal one first, then the tangential ones.

    - `names`: of the contacts, such as `foot[0]`; of those with one name the second is `foot 2`.
    - `contacts`: of each, whether it has a gap, and how many tangential rows.
    - `angles`: of each, whether its gap is an angle, in rad, with moments in N m and impulses in N m s.
    - `turning`: of each, how many of its last tangential rows are of friction against turning, with moments in N m and
      impulses in N m s; empty if none has such.
    - `gap`: gaps (k, n) [m], zero for dry friction. By time stepping they are computed when they are first read: steps do
      not look at bodies that are far apart.
    - `force`: forces on the m rows (k, m) [N], moments [N m].
    - `closed`, `sliding`: whether contacts are closed, and whether closed ones slide (k, n).
    - `ambiguous`: of which contacts other forces obey the laws as well, and would move the system otherwise (k, n):
      dependent ones that slide in different directions, such as the legs of a table that slides and spins, and sliding
      ones that may as well be open (Painleve). The run goes on with the least normal forces, by time stepping with those
      nearest to the step before; and such a contact opens, unless it slides already.
    - `closed_before`, `sliding_before`: the same from the start on, until the first event (n,).
    - `event_time`: when contacts closed, opened, stuck or slipped (l,) [s], infinite where fewer did; of a contact that
      comes to rest, when infinitely many bounces would have ended. A state saved at such a time is the one before it.
    - `impulse`: on the rows at these times (l, m) [N s]; zero where nothing was struck.
    - `event_closed`, `event_sliding`: as `closed` and `sliding`, from then on (l, n).
    - `speed`: the rate at which the gap, the force or the slip ran out (l,), -inf where it jumped. Near zero the event is
      grazing, and the run has no derivative there.
    - `sudden`: whether there was an impact without collision, as accelerations had no solution (Painleve) (l,).
    - `residual`: of the problem solved at these times (l,), as in `solve_contacts`; where it is not small there is no
      solution, and what the run went on with does not obey the laws.
    - `event_ambiguous`: as `ambiguous`, of what happened at these times (l, n); by time stepping False.
    - `reset`: which of the events with a reset it was, by place in `reset_names` (l,); -1 for none.
    - `reset_names`: of these events.
    - `reset_moved`: how far the state after a reset was off the bilateral constraints, onto which it was projected (l,).
    - `num_events`: how many there were, those beyond l included.

    By time stepping (`contact="steps"`) the events are steps with impacts, `force` is the impulse of a step over its
    length, and `speed` and the state before the first event are not known (NaN, False).
    """

    names: tuple[str, ...] = eqx.field(static=True)
    contacts: tuple[tuple[bool, int], ...] = eqx.field(static=True)
    angles: tuple[bool, ...] = eqx.field(static=True)
    gap: Float[Array, "k n"]
    force: Float[Array, "k m"]
    closed: Bool[Array, "k n"]
    sliding: Bool[Array, "k n"]
    ambiguous: Bool[Array, "k n"]
    closed_before: Bool[Array, " n"]
    sliding_before: Bool[Array, " n"]
    event_time: Float[Array, " l"]
    impulse: Float[Array, "l m"]
    event_closed: Bool[Array, "l n"]
    event_sliding: Bool[Array, "l n"]
    speed: Float[Array, " l"]
    sudden: Bool[Array, " l"]
    residual: Float[Array, " l"]
    event_ambiguous: Bool[Array, "l n"]
    reset: Int[Array, " l"]
    reset_names: tuple[str, ...] = eqx.field(static=True)
    reset_moved: Float[Array, " l"]
    num_events: Int[Array, ""]
    turning: tuple[int, ...] = eqx.field(static=True, default=())

    def __repr__(self) -> str:
        of = f"ContactHistory of {', '.join(self.names + self.reset_names)}"
        if is_traced(self.event_time) or np.shape(self.num_events):
            return f"{of}: gap {np.shape(self.gap)}, events {np.shape(self.event_time)}"
        count, times = int(self.num_events), np.asarray(self.event_time)
        span = (
            f", {times[0]:.6g} to {times[min(count, times.size) - 1]:.6g} s" if min(count, times.size) else ""
        )
        return f"{of}: {len(self.gap)} times, {count} events{span}"

    @property
    def row_names(self) -> tuple[str, ...]:
        """What the m rows are called, such as `foot[0] normal`, `foot[0] tangent 1`, `foot[0] rolling 2`."""
        return name_rows(self.names, self.contacts, self.turning)

    def rows(self, name: str) -> slice:
        """The rows of a contact, the normal one first.

        **Arguments:**

        - `name`: one of `names`.

        **Raises:** `InputError` for another name.
        """
        if name not in self.names:
            raise InputError(f"there is no contact '{name}'; there are {', '.join(self.names) or 'none'}.")
        sizes = [int(normal) + tangents for normal, tangents in self.contacts]
        i = self.names.index(name)
        return slice(sum(sizes[:i]), sum(sizes[: i + 1]))

    def told(self) -> list[str]:
        """What happened, a line for each event, such as `0.4515 s: floor is struck by 7.97 N s`; outside `jit` only.
        Events with a reset are counted: `0.53 s: brake (1 of 4)`, or `of 4+` where more happened than are kept."""
        if is_traced(self.event_time):
            raise InputError("events are told of a run that has values, outside jit.")
        count = min(int(self.num_events), self.event_time.size)
        lines, closed, sliding = [], np.asarray(self.closed_before), np.asarray(self.sliding_before)
        noise = 1e-12 + 1e-9 * np.max(np.abs(np.asarray(self.impulse)), initial=0)  # of rounding
        resets = [self.reset_names[k] if k >= 0 else None for k in np.asarray(self.reset)[:count]]
        more = "+" if int(self.num_events) > count else ""
        normals = jnp.array([self.rows(name).start for name in self.names], int)
        for i in range(count):
            now, slides = np.asarray(self.event_closed[i]), np.asarray(self.event_sliding[i])
            pushed = np.asarray(self.impulse[i])[normals] if self.names else np.zeros(0)
            parts = [
                word
                for j, name in enumerate(self.names)
                if (
                    word := _word(
                        name,
                        (pushed[j] * (abs(pushed[j]) > noise), "N m s" if self.angles[j] else "N s"),
                        (closed[j], sliding[j]),
                        (now[j], slides[j]),
                    )
                )
            ]
            parts += self._doubts(i)
            if (reset := resets[i]) is not None:
                parts = [f"{reset} ({resets[: i + 1].count(reset)} of {resets.count(reset)}{more})", *parts]
            lines.append(f"{float(self.event_time[i]):.10g} s: {', '.join(parts) or 'slip turns round'}")
            closed, sliding = now, slides
        return lines

    def _doubts(self, i: int) -> list[str]:
        """What is to be said of event i besides what happened."""
        others = [name for name, x in zip(self.names, self.event_ambiguous[i], strict=True) if x]
        unsolved = float(self.residual[i]) > UNSOLVED[self.residual.dtype != np.float64]
        doubts = ["without collision"] if bool(self.sudden[i]) else []
        doubts += [f"other motions of {', '.join(others)} obey the laws as well"] if others else []
        return doubts + (["no motion obeys the laws"] if unsolved else [])


def _word(name: str, impulse: tuple[float, str], before: tuple[bool, bool], after: tuple[bool, bool]) -> str:
    struck = f"{name} is struck by {impulse[0]:.4g} {impulse[1]}" if abs(impulse[0]) > 0 else ""
    if after[0] and not before[0]:
        state = "closes and slides" if after[1] else "closes"
    elif before[0] and not after[0]:
        state = "opens"
    elif after[0] and after[1] != before[1]:
        state = "slides" if after[1] else "sticks"
    else:
        state = ""
    return f"{struck} and {state}" if struck and state else struck or (f"{name} {state}" if state else "")
