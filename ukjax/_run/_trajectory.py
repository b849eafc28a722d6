"""What `simulate` returns: the motion, the forces that keep the constraints, and how well they are kept."""

import dataclasses
import functools
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._contact._history import ContactHistory
from .._formula._servo import ServoRun
from .._misc._arguments import real_array
from .._misc._display import html_of
from .._misc._errors import InputError, SimulationError
from .._misc._modules import reduce_module
from .._misc._types import as_jax, keep_precision, module_for
from .._system._constraint import Kind
from .._system._labels import Labels, make_indexed_names
from .._system._problem import Problem
from .._system._system import AbstractSystem
from . import _reports
from ._options import option_key
from ._results import (
    RESULTS,
    Dense,
    End,
    append_end,
    code,
    first_broken,
    is_good,
    last_of,
    require_values,
)

if TYPE_CHECKING:
    import pandas
    import xarray
    from matplotlib.animation import FuncAnimation
    from matplotlib.figure import Figure

    from .._figures._serve import View
    from ..mechanisms import Effort, Reaction
    from ._certificate import Certificate


# --- How a run was made, so that it can be made again: from the same start with other options


@final
@jax.tree_util.register_static
class RunOptions:
    """The options of a run, keyword arguments of `simulate` as they were given but for the start and the end, and what
    can be done with them. JAX compiles nothing anew for equal ones."""

    def __init__(self, simulate: Callable[..., Any], certify: Callable[..., Any], options: dict[str, Any]):
        self.simulate, self.certify, self.options = simulate, certify, options

    def __reduce__(self):  # without the key, in which objects stand by where they lie in memory
        return RunOptions, (self.simulate, self.certify, self.options)

    @functools.cached_property
    def _key(self) -> Hashable:
        return tuple((name, option_key(x)) for name, x in self.options.items())

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, RunOptions) and self._key == other._key)


class RunRecord(NamedTuple):
    """A run's start as it was given, its end, and its options."""

    # `q0`, `v0`, `t0`, `t1`: as for `ukjax.simulate`.
    q0: Array
    v0: Array
    t0: Array
    t1: Array
    by: RunOptions  # the options

    def again(self, system: Any, **changes: Any) -> Any:
        """The `Trajectory` of the same run with some arguments changed."""
        start = {name: getattr(self, name) for name in ("q0", "v0", "t0", "t1")}
        return self.by.simulate(system, **(start | self.by.options | changes))


# What draws, writes files or tells of mechanisms is loaded when it is asked for: a run needs none of it.
@final
class Trajectory(eqx.Module):
    """A simulated motion at k saved times, of n_q coordinates, n velocities and m constraint rows.

    There are as many as times were asked for, within `jit` and outside. Of a run that ended before some of these their
    time is infinite, and all else NaN (False, -1). Where it ended stands apart, in `end`.

    - `t`: saved times [s] (k,); `q`, `v`, `a`: coordinates (k, n_q), velocities and accelerations (k, n).
    - `constraint_force`: generalized constraint force Q_c (k, n); `multipliers`: those of least norm (k, m).
    - `position_error`: phi of holonomic rows, `velocity_error`: psi; each 0 for rows that have none (k, m).
    - `energy`: total energy [J] (k,), or None where the system defines none.
    - `rank`: rank of the constraint rows (k,).
    - `stats`: `num_steps`, `num_accepted_steps`, `num_rejected_steps`, and `num_evaluations` of the acceleration, where
      the solver's stages tell it: an upper bound for unprojected first-same-as-last runs with rejected steps.
    - `result`: a code of `RESULTS`.
    - `row_names`, `row_kinds`: the names and kinds of the m rows, as in `Rows`.
    - `name`: of the problem, or of the system's class; `message`: why the run ended early, empty if it did not.
    - `dense`: the motion as a function of time, if `simulate` was asked for it.
    - `problem`: what was simulated; None if it was made within `jit` (sweeps keep it) or read from a file.
    - `start_moved`: the largest change of a coordinate, and of a velocity, by which the start was projected (2,).
    - `event`: the index in `event_names` of the event that stopped the run, -1 where none did.
    - `computed_by`: whether scalar code computed the accelerations, and if not, why; and why the steps of a run with
      events or contacts are left to XLA, if they are.
    - `coordinate_names`, `velocity_names`: as the system's `labels` say; empty where there are none (see `names`).
    - `num_states`: how many of the velocities, the last ones, are states of first order (see `states`).
    - `tracking`: of a run read from a file, how the servo rows were followed (see `servo`).
    - `contacts`: gaps, forces and events of unilateral constraints; None of systems without such.
    - `made`: from which start and by which options, for `certify`; None where `problem` is.
    - `end`: where the run ended, at t1, at an event or where it failed: the first ten fields without an axis of times.
    """

    t: Float[Array, " k"]
    q: Float[Array, "k nq"]
    v: Float[Array, "k n"]
    a: Float[Array, "k n"]
    constraint_force: Float[Array, "k n"]
    multipliers: Float[Array, "k m"]
    position_error: Float[Array, "k m"]
    velocity_error: Float[Array, "k m"]
    energy: Float[Array, " k"] | None
    rank: Int[Array, " k"]
    stats: dict[str, Array]
    result: RESULTS
    row_names: tuple[str, ...] = eqx.field(static=True)
    row_kinds: tuple[Kind, ...] = eqx.field(static=True)
    name: str = eqx.field(static=True, default="simulation")
    message: str = eqx.field(static=True, default="")
    dense: Dense | None = None
    problem: Problem | None = None
    start_moved: Float[Array, "2"] | tuple[float, float] = (0.0, 0.0)
    event: Int[Array, ""] | int = -1
    event_names: tuple[str, ...] = eqx.field(static=True, default=())
    computed_by: str = eqx.field(static=True, default="")
    coordinate_names: tuple[str, ...] = eqx.field(static=True, default=())
    velocity_names: tuple[str, ...] = eqx.field(static=True, default=())
    num_states: int = eqx.field(static=True, default=0)
    tracking: ServoRun | None = None
    contacts: ContactHistory | None = None
    made: RunRecord | None = None
    end: End | None = None

    def __getattribute__(self, name: str) -> Any:
        x = object.__getattribute__(
            self, name
        )  # not as Equinox binds methods, which reads all that is not computed yet
        if type(x) is np.ndarray:
            # A run leaves arrays of NumPy's: to hand all of them to JAX takes longer than a short run.
            x = vars(self)[name] = keep_precision(x)
        return x

    def __len__(self) -> int:
        return self.t.shape[0]

    def __reduce__(self):
        return reduce_module(self)

    @property
    def ok(self) -> bool:
        """Whether the run reached its end, or the event it was to stop at."""
        require_values(self)
        return is_good(self.result)

    @property
    def t_end(self) -> Float[Array, ""]:
        """When the run ended [s]: t1, or the time it stopped at."""
        return keep_precision(last_of(self).t)

    @property
    def q_end(self) -> Float[Array, " nq"]:
        """The coordinates in which it ended (n_q,)."""
        return keep_precision(last_of(self).q)

    @property
    def v_end(self) -> Float[Array, " n"]:
        """The velocities with which it ended (n,)."""
        return keep_precision(last_of(self).v)

    @property
    def broken_rows(self) -> tuple[str, ...]:
        """The names of the constraint rows that could be kept no longer, of a run with this result; outside `jit`. Where
        the problem is not known (see `with_problem`), of those that contradict each other only the ones that are off."""
        return first_broken(self)[1] if self.result_name == "constraints_broken" else ()

    def largest(self, x: Float[Array, "k ..."]) -> Float[Array, ""]:
        """The largest magnitude over the saved times reached.

        **Arguments:**

        - `x`: an array with the k times in front.
        """
        return _largest(self.t, x)

    @property
    def max_position_error(self) -> Float[Array, ""]:
        """The largest |phi| over all rows, the saved times reached and the end."""
        return _largest(*append_end(self, "t", "position_error"))

    @property
    def max_velocity_error(self) -> Float[Array, ""]:
        """The largest |psi| over all rows, the saved times reached and the end."""
        return _largest(*append_end(self, "t", "velocity_error"))

    @property
    def energy_drift(self) -> Float[Array, ""] | None:
        """The largest |E(t) - E(t0)| over the saved times reached and the end [J]: an error where it is conserved."""
        if self.energy is None:
            return None
        t, energy = append_end(self, "t", "energy")
        xp = module_for(t, energy)
        return _largest(t, xp.subtract(energy, xp.asarray(energy)[xp.argmax(xp.isfinite(t))]))

    @property
    def rank_min(self) -> Int[Array, ""]:
        """The least rank at the saved times reached and the end."""
        t, rank = append_end(self, "t", "rank")
        xp = module_for(t, rank)
        return as_jax(xp.min(xp.where(xp.isfinite(t), rank, np.iinfo(rank.dtype).max)))

    @property
    def rank_max(self) -> Int[Array, ""]:
        """The largest rank at the saved times reached and the end."""
        t, rank = append_end(self, "t", "rank")
        xp = module_for(t, rank)
        return as_jax(xp.max(xp.where(xp.isfinite(t), rank, -1)))

    @property
    def rank_changed(self) -> Bool[Array, ""]:
        """Whether the rank differs between saved times; between them is what `passages` finds."""
        return self.rank_min != self.rank_max

    def evaluate(self, t: Float[Array, ""] | float) -> tuple[Float[Array, " nq"], Float[Array, " n"]]:
        """(q, v) at any time of the run.

        **Arguments:**

        - `t`: time [s]; `InputError` unless the run was made with `dense=True`.
        """
        if self.dense is None:
            raise InputError("this trajectory has no dense output: call simulate(..., dense=True).")
        t = real_array("t", t).astype(self.t.dtype)
        if t.ndim:
            raise InputError(f"t has shape {t.shape}; it is one time (use jax.vmap for many).")
        return self.dense(t)

    def raise_if_failed(self) -> "Trajectory":
        """This trajectory; raises `SimulationError` with `message` if the run ended early."""
        if not self.ok:
            raise SimulationError(self.message)
        return self

    @property
    def result_name(self) -> str:
        """The name of the result's code, such as `successful` or `max_steps_reached`."""
        require_values(self)
        return next(name for name, x in RESULTS._name_to_item.items() if code(x) == code(self.result))

    @property
    def event_name(self) -> str | None:
        """The name of the event that stopped the run, or None."""
        return None if self.event < 0 else self.event_names[int(self.event)]

    def summary(self) -> dict[str, Any]:
        """The figures one looks at first, as plain numbers; those of servo rows are among them under servo control."""
        return _reports.summary(self)

    def __repr__(self) -> str:
        return _reports.as_line(self)

    def _repr_html_(self) -> str:
        return html_of(self)

    @property
    def names(self) -> Labels:
        """What the coordinates and velocities are called, `q[0]`, ... and `v[0]`, ... where they have no names."""
        q, v = self.q.shape[-1], self.v.shape[-1]
        return Labels(
            self.coordinate_names or make_indexed_names("q", q),
            self.velocity_names or make_indexed_names("v", v),
        )

    @property
    def states(self) -> dict[str, Float[Array, " k"]]:
        """The states of first order at the saved times, by name: activations of actuators, or a system's `states`."""
        n = self.v.shape[-1] - self.num_states
        return {name: self.v[..., n + i] for i, name in enumerate(self.names.velocities[n:])}

    def with_problem(self, problem: Problem | AbstractSystem) -> "Trajectory":
        """This trajectory, told the `problem` (or system), which a run within `jit` or from a file does not know."""
        if isinstance(problem, AbstractSystem):
            points = getattr(problem, "points", None)
            problem = Problem(problem, self.q[0], self.v[0], 0.0, 0.0, points, name=self.name)
        if not isinstance(problem, Problem):
            raise InputError(f"problem must be a Problem or a system, got {type(problem).__name__}.")
        return dataclasses.replace(self, problem=problem)

    def certify(self, path: str | Path | None = None, *, directions: int = 3) -> "Certificate":
        """What was solved, by what, and how far it can be trusted: runs again at tighter tolerances, takes derivatives,
        and returns a `ukjax.Certificate`. `InputError` where it is not known how the run was made.

        **Arguments:**

        - `path`: where to write it (.md or .json); by default it is only returned.
        - `directions`: in how many random ones the run's derivative is compared with differences; 0 for none.
        """
        return get_run_record(self).by.certify(self, path, directions)

    def points(self) -> dict[str, Array]:
        """The named points [m] at the saved times, (k, 2) or (k, 3) by name. This and what follows is computed when it is
        called; `InputError` where there is no such thing, or the problem is not known (see `with_problem`)."""
        from . import _quantities

        return _quantities.points(self)

    def reactions(self) -> "dict[str, Reaction]":
        """The force and torque at each joint of a mechanism, as `ukjax.mechanisms.reactions`, but for its actuators'."""
        from . import _quantities

        return _quantities.reactions(self)

    def loads(self) -> "dict[str, Effort]":
        """Effort and power of each load of a mechanism, as `ukjax.mechanisms.efforts`; of actuators with the inputs."""
        from . import _quantities

        return _quantities.loads(self)

    def energies(self) -> dict[str, Array]:
        """The energy by parts [J] (k,), of a mechanism `kinetic_<body>` and `potential_<load>`."""
        from . import _quantities

        return _quantities.energies(self)

    def servo(self) -> ServoRun:
        """How the servo rows were followed, and by which inputs, of a run under `with_servo`."""
        from . import _quantities

        return _quantities.servo(self)

    def to_xarray(self, *, parts: str | Sequence[str] = ()) -> "xarray.Dataset":
        """The trajectory as an `xarray.Dataset` with named dimensions, labels and units.

        **Arguments:**

        - `parts`: what to add of `"points"`, `"reactions"`, `"loads"`, `"contacts"` and `"energies"`.

        **Raises:** `MissingExtraError` without xarray (`ukjax[data]`), `InputError` as the methods of these names.
        """
        from .._figures import _files

        return _files.to_xarray(_reports.table(self, parts))

    def to_pandas(self, *, parts: str | Sequence[str] = ()) -> "pandas.DataFrame":
        """The trajectory as a `pandas.DataFrame` over time: a column for each number, such as `q[crank theta]`.

        **Arguments:**

        - `parts`: as for `to_xarray`.

        **Raises:** `MissingExtraError` without pandas (`ukjax[data]`), `InputError` as `to_xarray`.
        """
        from .._figures import _frames

        return _frames.to_pandas(_reports.table(self, parts))

    def save(self, path: str | Path, *, parts: str | Sequence[str] = ()) -> Path:
        """Writes the trajectory to a file: all but `dense` and `problem`; or what `view` shows.

        **Arguments:**

        - `path`: its suffix chooses the format: .npz, .nc (NetCDF) or .zarr, which `load` reads; .csv, for other
          programs, with the columns of `to_pandas`; .html, which any browser shows without a network.
        - `parts`: as for `to_xarray`, `load` leaves them out; of .html files as for `ukjax.view`.

        **Returns:** the path. **Raises:** `InputError` for another suffix, `MissingExtraError` without its library.
        """
        from .._figures import _files
        from . import _view

        if str(path).endswith(".html"):
            return _view.save(self, path, parts)
        return _files.save(_reports.table(self, parts), path)

    @classmethod
    def load(cls, path: str | Path) -> "Trajectory":
        """Reads a trajectory written by `save`.

        **Arguments:**

        - `path`: the file (or Zarr folder); `InputError` if there is none, or it is not such a file.
        """
        from .._figures import _files

        fields = _reports.fields_from(_files.load(path, _reports.COLUMNS, RESULTS._name_to_item))
        return cls(**fields | {"result": RESULTS._name_to_item[fields["result"]]})

    def plot(self, path: str | Path | None = None) -> "Figure":
        """Draws over time: coordinates, and what there is of constraint forces and errors (log axis), contacts, servo
        errors and inputs, and energy. Of many lines the ones that move most are drawn, of contacts those that come near,
        and it says so. Lengths and angles of a mechanism have panels of their own, places of one pair of shapes one line.

        **Arguments:**

        - `path`: where to write it (.png, .pdf, .svg). `MissingExtraError` without matplotlib (`ukjax[plot]`).
        """
        from .._figures import _plot
        from . import _quantities

        units = _quantities.coordinate_units(self.problem and self.problem.system)
        return _plot.plot(_reports.table(self), path, units, _quantities.pair_names(self))

    def view(self, **options: Any) -> "View":
        """This run in the browser: `ukjax.view`, which has the `options` and also shows several runs side by side."""
        from . import _view

        return _view.view(self, **options)

    def animate(
        self,
        path: str | Path | None = None,
        *,
        problem: Problem | None = None,
        parts: str | Sequence[str] = (),
        speed: float = 1.0,
        fps: int = 25,
    ) -> "FuncAnimation":
        """A moving picture as a file, of what `view` shows: bodies with their shapes, or the system's `drawing`; and the
        problem's points with their paths. In a notebook it shows itself.

        **Arguments:**

        - `path`: where to write it (.gif, .html, or .mp4, which needs ffmpeg); by default it is only returned.
        - `problem`: what was simulated; by default known, as `with_problem` says.
        - `parts`: as for `ukjax.view`, such as `"contacts"`, the forces at contacts as arrows.
        - `speed`, `fps`: seconds of motion in a second of film, and frames per second.

        **Returns:** the matplotlib animation. **Raises:** `InputError` where there is nothing to draw, or for a file
        that cannot be written; `MissingExtraError` without matplotlib (`ukjax[plot]`).
        """
        from . import _view

        return _view.animate(self, path, problem=problem, parts=parts, speed=speed, fps=fps)


def _largest(t: Any, x: Any) -> Array:
    """The largest magnitude at the times reached, others being infinite; by NumPy where values are known, which
    compiles nothing."""
    xp = module_for(t, x)
    reached = xp.isfinite(t).reshape(-1, *[1] * (x.ndim - 1))
    return as_jax(xp.max(xp.abs(xp.where(reached, x, 0)), initial=0))


def get_run_record(trajectory: Trajectory) -> RunRecord:
    """How a run was made."""
    if trajectory.made is None:
        raise InputError(
            "this trajectory does not know how it was made: it comes from a file, or from within jit. Call simulate "
            "outside jit."
        )
    return trajectory.made
