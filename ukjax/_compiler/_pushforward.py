"""Changes of whole runs in forward mode: runs of a state that carries its change along, at the steps of the run itself.

With y = (q, v), parameters p and their changes y', p', the field f(t, y, p) becomes (f, df/dy y' + df/dp p'), and the
projection of a step's end likewise. The control sees y alone, so that the sizes of steps count as constants.
"""

import itertools
from collections.abc import Sequence

from ._copies import copied
from ._expressions import Expression, reachable
from ._program import Program
from ._run_layout import Control, MotionPrograms
from ._scalars import Builder


def carrying_change(motion: MotionPrograms, control: Control) -> tuple[MotionPrograms, Control]:
    """A motion of twice the size, whose parameters are twice as many, and its control."""
    n = motion.size
    field = _carrying(motion.field, n, 1)
    projection = motion.projection and _carrying(motion.projection, n, motion.multipliers)
    motion = MotionPrograms(field, projection, motion.multipliers, 2 * n, motion.estimates)
    return motion, _looking_at_first(control, n)


def _carrying(program: Program, n: int, rest: int) -> Program:
    """Of parameters p, p', time, state y, y', of a projection its errors, and the rest: what it gives of y and y'."""
    count, projects = sum(program.counts), len(program.outputs) > n
    errors = n if projects else 0
    p = count - 1 - n - errors - rest
    first = 1 if p else 0
    change = program.pushforward((*range(first), first + 1, first + 2), n)
    counts = (2 * p, 1, 2 * n, 2 * errors, rest)
    _, time, y, e, last = itertools.accumulate((0, *counts[:-1]))  # where each begins
    runs = (0, p), (time, 1), (y, n), (e, errors), (last, rest)
    own = [begin + i for begin, many in runs for i in range(many)]
    changes = [*range(p, 2 * p), *range(y + n, y + 2 * n)]
    build = Builder()
    kept = _renumbered(program.outputs, own, build)
    moved = _renumbered(change.outputs, [*own, *changes], build)
    without = [0.0] * n if len(kept) > n + rest + 2 else []  # a change has no error
    return Program([*kept[:n], *moved, *kept[n:], *without], counts, program.dtype)


def _looking_at_first(control: Control, n: int) -> Control:
    """A control of states of twice as many numbers, of which it sees the first."""
    count = sum(control.step.counts)
    before = count - 1 - 3 * n
    states = [before + 2 * n * i + j for i in range(3) for j in range(n)]
    build, last = Builder(), before + 6 * n
    outputs = _renumbered(control.step.outputs, [*range(before), *states, last], build)
    return control._replace(step=Program(outputs, (last + 1,), control.step.dtype))


def _renumbered(outputs: Sequence[Expression], places: Sequence[int], build: Builder) -> list[Expression]:
    """Expressions whose inputs have other numbers."""
    inputs = {x: build.input(places[x.args[0]]) for x in reachable(outputs) if x.op == "input"}
    return list(copied(outputs, inputs, build))
