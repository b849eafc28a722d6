"""What a notebook shows of problems, systems, runs, the report of `check`, and robots."""

import functools
import html
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._compiler import evaluate_at_state
from .._figures._animate import draw_end
from .._figures._card import SHOWN, Card, list_names
from .._figures._moving_parts import ShownRun
from .._figures._scene import scene_of
from .._formula._equations import equations_at
from .._misc._types import is_traced
from .._system._constraint import OF_POSITIONS, OF_VELOCITIES, as_constraints, unilateral
from .._system._labels import make_indexed_names, title_of
from .._system._problem import Problem, resolve_state
from .._system._stabilize import NoStabilizer
from .._system._system import AbstractSystem, innermost, names_of
from ..mechanisms import problem as problem_of
from ..robots import Robot, RobotReport, Sensors
from ._doctor import Report
from ._results import append_end
from ._trajectory import Trajectory
from ._view import prepare_run

_FRAMES = 100  # of a run, which tell its picture how far all moves


def html_of(x: Any) -> str:
    """A table and, where it can be drawn, a picture; of what JAX traces, and of batches, the line that `repr` gives."""
    if is_traced(x) or (isinstance(x, Trajectory) and getattr(x.t, "ndim", 0) != 1):
        return f"<pre>{html.escape(repr(x))}</pre>"
    return _describe(x).to_html()


@functools.singledispatch
def _describe(x: Any) -> Card:
    raise NotImplementedError(type(x).__name__)


@_describe.register
def _(x: Problem) -> Card:
    return _describe_problem(x, Card(x.name))


@_describe.register
def _(x: AbstractSystem) -> Card:
    card = Card(title_of(x))
    if hasattr(innermost(x), "mechanism"):
        card.attempt("start", lambda: _add_start(card, problem_of(x)))
        return card
    card.add_facts(coordinates=list_names(getattr(x, "labels", ())))
    rows = [(c.name, getattr(c, "kind", "unilateral")) for c in as_constraints(x.constraints)]
    if rows:
        card.add_table(("constraint", "kind"), rows[:SHOWN])
    if len(rows) > SHOWN:
        card.add_line(f"and {len(rows) - SHOWN} more")
    return card


@_describe.register
def _(x: Robot) -> Card:
    card = _describe_problem(x.problem, Card(f"Robot '{x.problem.name}'"))
    lost = [f"{f.feature} ({f.status})" for f in x.report.features if f.moves and f.status != "used"]
    card.add_facts(inputs=list_names(x.names.actuators), not_used_as_it_stands=", ".join(lost))
    return card


@_describe.register
def _(x: RobotReport) -> Card:
    card = Card(x.source)
    rows = ((f.status, f.feature, list_names(f.names), f.why) for f in x.features)
    card.add_table(("", "feature", "names", "why"), rows)
    if (problem := x.problem) is not None:
        card.attempt("picture", lambda: _add_picture(card, problem))
    return card


@_describe.register
def _(x: Sensors) -> Card:
    card = Card(f"{len(x)} sensors")
    rows = [(s.name, s.kind, f"{s.size}", f"{s.noise:g}" if s.noise else "") for s in x.chosen_sensors]
    if rows:
        card.add_table(("sensor", "kind", "numbers", "noise"), rows)
    return card


@_describe.register
def _(x: Report) -> Card:
    card = Card(f"check: {'ok' if x.ok else 'not ok'}")
    for sentence in str(x).splitlines():
        card.add_line(sentence)
    if (problem := x.problem) is not None:
        card.attempt("figures", lambda: _add_start(card, problem))
    return card


@_describe.register
def _(x: Trajectory) -> Card:
    card = Card(x.name)
    card.attempt("figures", lambda: _add_figures(card, x))
    card.attempt("picture", lambda: card.add_picture(_draw_run(x)))
    return card


def _describe_problem(problem: Problem, card: Card) -> Card:
    card.attempt("figures", lambda: _add_start(card, problem))
    card.add_facts(source=problem.citation)
    return card


def _energy(system: AbstractSystem, t: Any, q: Any, v: Any) -> Any:
    return system.energy(t, q, v)


def _add_start(card: Card, problem: Problem) -> None:
    """Sizes and names, and the energy and the constraints at the start."""
    system, *state = resolve_state(problem, None, None, None)
    t, q, v = map(np.asarray, state)
    inner, names = innermost(system), names_of(system, *state[1:])
    unnamed = names.velocities in (names.coordinates, make_indexed_names("v", q.size))
    for part in ("bodies", "joints", "loads"):
        card.add_facts(**{part: list_names(x.name for x in getattr(inner, part, ()))})
    card.add_facts(
        coordinates=list_names(names.coordinates), velocities=list_names(() if unnamed else names.velocities)
    )
    contacts = [name for c in unilateral(system.constraints) for name in c.names or (c.name,)]
    card.add_facts(contacts=list_names(contacts))
    rows = equations_at(system, NoStabilizer(), t, q, v).rows
    energy = evaluate_at_state(_energy, system, t, q, v)
    card.add_facts(
        energy=None if energy is None else f"{float(energy):.6g} J",
        time=f"{float(problem.t0):g} to {float(problem.t1):g} s" if problem.t1 != problem.t0 else "",
    )
    _add_constraints(card, rows.names, rows.kinds, rows.position_error, rows.velocity_error)
    card.attempt("picture", lambda: _add_picture(card, problem))


def _add_picture(card: Card, problem: Problem) -> None:
    """The start."""
    _, t, q, _ = resolve_state(problem, None, None, None)
    shown = ShownRun(problem.name, problem, np.asarray(t)[None], np.asarray(q)[None], {}, False, {}, False)
    card.add_picture(draw_end(scene_of([shown], speed=1.0, fps=1.0)))


def _add_figures(card: Card, run: Trajectory) -> None:
    """How the run went, as `Trajectory.summary` says."""
    told = run.summary()
    card.add_facts(
        result=told["result"] + (f": {run.message}" if run.message else ""),
        event=told["event"],
        time=f"{float(run.t[0]):g} to {told['t1']:.6g} s, {len(run)} saved",
        steps=f"{told['steps']}, {told['rejected_steps'] or 0} of them rejected",
        coordinates=list_names(run.names.coordinates),
    )
    if run.row_names:
        ranks = sorted({told["rank_min"], told["rank_max"]})
        card.add_facts(
            constraint_rows=f"{len(run.row_names)}, rank {' to '.join(map(str, ranks))}",
            nearly_dependent=", ".join(told["nearly_dependent"]),
        )
    if run.energy is not None:
        card.add_facts(
            energy=f"{float(run.energy[0]):.6g} J at the start, off by {told['energy_drift']:.1e} J at most"
        )
    if run.contacts is not None:
        card.add_facts(events_of_contacts=int(run.contacts.num_events))
    card.add_facts(tracking_error=told.get("max_servo_position_error"), largest_input=told.get("max_input"))
    t, *errors = append_end(run, "t", "position_error", "velocity_error")
    phi, psi = (np.abs(np.asarray(x)[np.isfinite(t)]).max(axis=0, initial=0) for x in errors)
    _add_constraints(card, run.row_names, run.row_kinds, phi, psi)


def _draw_run(run: Trajectory) -> bytes:
    shown = prepare_run(run.name, run, (), trails=True)
    seconds = float(shown.t[-1] - shown.t[0]) or 1.0
    return draw_end(scene_of([shown], speed=1.0, fps=_FRAMES / seconds))


def _add_constraints(card: Card, names: Sequence[str], kinds: Sequence[str], phi: Any, psi: Any) -> None:
    """A line for each constraint, of many for those farthest off: the largest errors of its rows."""
    owners = [re.sub(r"\[\d+\]$", "", name) for name in names]
    counts, kind_of = Counter(owners), dict(zip(owners, kinds, strict=True))
    off = {name: np.zeros(2) for name in counts}
    for name, *errors in zip(owners, np.abs(phi), np.abs(psi), strict=True):
        off[name] = np.maximum(off[name], errors)
    worst = sorted(off, key=lambda name: -off[name].max())[:SHOWN]
    rows = []
    for name in (name for name in off if name in worst):
        kind, (of_q, of_v) = kind_of[name], (f"{x:.1e}" if x else "0" for x in off[name])
        asked = of_q if kind in OF_POSITIONS else "-", of_v if kind in OF_VELOCITIES else "-"
        rows.append((name, kind, str(counts[name]), *asked))
    if rows:
        card.add_table(("constraint", "kind", "rows", "position off by", "velocity off by"), rows)
    if len(off) > len(rows):
        card.add_line(f"and {len(off) - len(rows)} more, none of them farther off")
