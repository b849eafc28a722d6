"""What `simulate` returns: the motion, the forces that keep the constraints, and how well they are kept."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import diffrax as dfx
import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._figures import _animate, _files, _plot
from .._misc._arguments import real_array
from .._misc._errors import InputError, SimulationError
from .._motion._project import Projection
from .._system._constraint import Kind
from .._system._problem import Problem
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem

if TYPE_CHECKING:
    import xarray
    from matplotlib.animation import FuncAnimation
    from matplotlib.figure import Figure


class RESULTS(dfx.RESULTS):  # pyright: ignore[reportGeneralTypeIssues]
    """How a simulation ended: Diffrax's codes, and `diverged`."""

    diverged = (
        "The state or the acceleration became infinite or NaN: the motion diverged, the mass matrix lost its "
        "positive definiteness, or the pseudoinverse method met rows it cannot handle."
    )


@final
class Dense(eqx.Module):
    """A trajectory between its saved times: Diffrax's interpolation, projected where the run projects."""

    interpolation: dfx.DenseInterpolation
    system: AbstractSystem
    stabilizer: AbstractStabilizer

    @eqx.filter_jit
    def __call__(self, t: Array) -> tuple[Array, Array]:
        q, v = self.interpolation.evaluate(t)
        if isinstance(self.stabilizer, Projection):
            q, v = self.stabilizer(self.system, t, q, v)
        return q, v


@final
class Trajectory(eqx.Module):
    """A simulated motion at k saved times, of n_q coordinates, n velocities and m constraint rows.

    - `t`: saved times [s] (k,).
    - `q`: generalized coordinates (k, n_q).
    - `v`: generalized velocities (k, n).
    - `a`: generalized accelerations (k, n).
    - `constraint_force`: generalized constraint force Q_c (k, n).
    - `multipliers`: Lagrange multipliers of least norm (k, m).
    - `position_error`: phi of holonomic rows, 0 for the others (k, m).
    - `velocity_error`: psi, 0 for rows given as A a = b (k, m).
    - `energy`: total energy [J] (k,), or None where the system defines none.
    - `rank`: rank of the constraint rows (k,).
    - `stats`: `num_steps`, `num_accepted_steps`, `num_rejected_steps`, and `num_evaluations` of the
      acceleration by these steps, if known: an upper bound for unprojected FSAL runs with rejected steps.
    - `result`: a code of `RESULTS`.
    - `row_names`: the names of the m rows, as in `Rows`.
    - `row_kinds`: their kinds, as in `Rows`.
    - `name`: of the problem, or of the system's class.
    - `message`: why the run ended early, in words; empty if it did not.
    - `dense`: the motion as a function of time, if `simulate` was asked for it.
    - `problem`: what was simulated, for `animate`; None of a compiled run and of one read from a file.
    - `computed_by`: whether the accelerations of the run came from scalar code, and else why not.
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
    computed_by: str = eqx.field(static=True, default="")

    def __len__(self) -> int:
        return self.t.shape[0]

    @property
    def ok(self) -> bool:
        """Whether the run reached its end, or the event it was to stop at."""
        return bool((self.result == RESULTS.successful) | (self.result == RESULTS.event_occurred))

    @property
    def _reached(self) -> Bool[Array, " k"]:
        """Which saved times the run reached: a compiled run that ended early has others, which mean nothing."""
        return jnp.isfinite(self.t)

    def _largest(self, x: Float[Array, "k ..."]) -> Float[Array, ""]:
        return jnp.max(jnp.abs(jnp.where(jnp.expand_dims(self._reached, range(1, x.ndim)), x, 0)), initial=0)

    @property
    def max_position_error(self) -> Float[Array, ""]:
        """The largest |phi| over all rows and the saved times reached."""
        return self._largest(self.position_error)

    @property
    def max_velocity_error(self) -> Float[Array, ""]:
        """The largest |psi| over all rows and the saved times reached."""
        return self._largest(self.velocity_error)

    @property
    def energy_drift(self) -> Float[Array, ""] | None:
        """The largest |E(t) - E(t0)| over the saved times reached [J]: an error where the energy is conserved."""
        if self.energy is None:
            return None
        return self._largest(self.energy - self.energy[jnp.argmax(self._reached)])

    @property
    def rank_min(self) -> Int[Array, ""]:
        """The least rank at the saved times reached."""
        return jnp.min(jnp.where(self._reached, self.rank, jnp.iinfo(self.rank.dtype).max))

    @property
    def rank_max(self) -> Int[Array, ""]:
        """The largest rank at the saved times reached."""
        return jnp.max(jnp.where(self._reached, self.rank, -1))

    @property
    def rank_changed(self) -> Bool[Array, ""]:
        """Whether the rank differs between saved times; one lost and regained between them does not show."""
        return self.rank_min != self.rank_max

    def evaluate(self, t: Float[Array, ""] | float) -> tuple[Float[Array, " nq"], Float[Array, " n"]]:
        """(q, v) at any time of the run.

        **Arguments:**

        - `t`: time [s].

        **Raises:** `InputError` unless the run was made with `dense=True`.
        """
        if self.dense is None:
            raise InputError("this trajectory was not kept dense; call simulate(..., dense=True).")
        t = real_array("t", t).astype(self.t.dtype)
        if not t.ndim:
            return self.dense(t)
        raise InputError(f"t has shape {t.shape}; it is one time (use jax.vmap for many).")

    def raise_if_failed(self) -> "Trajectory":
        """This trajectory; raises `SimulationError` with `message` if the run ended early."""
        if not self.ok:
            raise SimulationError(self.message)
        return self

    @property
    def result_name(self) -> str:
        """The name of the result's code, such as `successful` or `max_steps_reached`."""
        return next(name for name, code in RESULTS._name_to_item.items() if bool(code == self.result))

    def summary(self) -> dict[str, Any]:
        """The figures one looks at first, as plain numbers; the command line prints these."""
        drift, evaluations = self.energy_drift, self.stats.get("num_evaluations")
        return {
            "model": self.name,
            "t1": float(self.t[-1]),
            "steps": int(self.stats["num_steps"]),
            "evaluations": None if evaluations is None else int(evaluations),
            "max_position_error": float(self.max_position_error),
            "max_velocity_error": float(self.max_velocity_error),
            "energy_drift": None if drift is None else float(drift),
            "rank_min": int(self.rank_min),
            "rank_max": int(self.rank_max),
            "result": self.result_name,
        }

    def _table(self) -> _files.Table:
        """The arrays with their dimensions and units, as files and xarray see them."""
        named = {name: (dims, getattr(self, name), units) for name, (dims, units) in _COLUMNS.items()}
        columns = {k: _files.Column(d, np.asarray(x), u) for k, (d, x, u) in named.items() if x is not None}
        labels = {"row": list(self.row_names), "row_kind": list(self.row_kinds)}
        stats = {name: int(value) for name, value in self.stats.items()}
        attributes = {"model": self.name, "result": self.result_name, "message": self.message, **stats}
        return _files.Table(columns, labels, attributes)

    def to_xarray(self) -> "xarray.Dataset":
        """The trajectory as an `xarray.Dataset` with named dimensions, row names and units.

        **Raises:** `MissingExtraError` without xarray (`ukjax[data]`).
        """
        return _files.to_xarray(self._table())

    def save(self, path: str | Path) -> Path:
        """Writes the trajectory to a file: all but `dense`, `problem` and `computed_by`.

        **Arguments:**

        - `path`: its suffix chooses the format: .npz, .nc (NetCDF) or .zarr.

        **Returns:** the path.

        **Raises:** `InputError` for another suffix, `MissingExtraError` without the format's library.
        """
        return _files.save(self._table(), path)

    @classmethod
    def load(cls, path: str | Path) -> "Trajectory":
        """Reads a trajectory written by `save`.

        **Arguments:**

        - `path`: the file (or Zarr folder).

        **Raises:** `InputError` if there is none, or it is not such a file.
        """
        table = _files.load(path, _COLUMNS, RESULTS._name_to_item)
        arrays = {name: jnp.asarray(column.values) for name, column in table.columns.items()}
        attributes = dict(table.attributes)
        name, result, message = (str(attributes.pop(key)) for key in ("model", "result", "message"))
        return cls(
            **{name: arrays.get(name) for name in _COLUMNS},
            stats={name: jnp.asarray(value) for name, value in attributes.items()},
            result=RESULTS._name_to_item[result],
            row_names=tuple(table.labels["row"]),
            row_kinds=tuple(table.labels["row_kind"]),  # pyright: ignore[reportArgumentType]
            name=name,
            message=message,
        )

    def plot(self, path: str | Path | None = None) -> "Figure":
        """Draws coordinates, constraint errors (log axis), energy, and constraint forces over time.

        **Arguments:**

        - `path`: where to write the figure (.png, .pdf, .svg); by default it is only returned.

        **Returns:** the matplotlib figure.

        **Raises:** `MissingExtraError` without matplotlib (`ukjax[plot]`).
        """
        return _plot.plot(self._table(), path)

    def animate(
        self,
        path: str | Path | None = None,
        *,
        problem: Problem | None = None,
        speed: float = 1.0,
        fps: int = 25,
    ) -> "FuncAnimation":
        """A moving picture: the system's `drawing` as bars, the problem's points with their paths.

        Between saved times positions are interpolated linearly: save enough of them.

        **Arguments:**

        - `path`: where to write it (.gif, .html, or .mp4, which needs ffmpeg); by default it is only returned.
        - `problem`: what was simulated; by default known, except of a trajectory read from a file.
        - `speed`: seconds of motion in a second of film.
        - `fps`: frames per second.

        **Returns:** the matplotlib animation.

        **Raises:** `InputError` where there is nothing to draw, or for a file that cannot be written;
        `MissingExtraError` without matplotlib (`ukjax[plot]`).
        """
        problem = self.problem if problem is None else problem
        if problem is None:
            raise InputError("it is not known what was simulated: give animate(problem=...).")
        return _animate.animate(problem, np.asarray(self.t), np.asarray(self.q), path, speed=speed, fps=fps)


_COLUMNS: dict[str, tuple[tuple[str, ...], str]] = {
    "t": (("time",), "s"),
    "q": (("time", "coordinate"), "generalized coordinate"),
    "v": (("time", "velocity"), "generalized velocity"),
    "a": (("time", "velocity"), "generalized acceleration"),
    "constraint_force": (("time", "velocity"), "generalized force"),
    "multipliers": (("time", "row"), "force conjugate to the row"),
    "position_error": (("time", "row"), "unit of the row"),
    "velocity_error": (("time", "row"), "unit of the row / s"),
    "energy": (("time",), "J"),
    "rank": (("time",), "1"),
}
