"""The sensors of a robot's file as functions of its motion."""

from typing import TYPE_CHECKING, Any, NamedTuple, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._compiler import evaluate_at_states, evaluate_by_code
from .._contact._rows import layout_of
from .._formula._acceleration import UdwadiaKalaba
from .._formula._on_host import acceleration_at
from .._misc._arguments import real_array
from .._misc._closures import equal_to_itself
from .._misc._display import html_of
from .._misc._errors import InputError, unknown_name
from .._misc._types import Coordinates, Numbers, Time, Velocities, as_jax, in_full_precision, is_traced
from .._motion._model import Model, translate_model
from .._system._constraint import unilateral
from .._system._labels import make_indexed_names
from .._system._stabilize import NoStabilizer
from ..mechanisms import Connect, Contact, Limit, TreeSystem
from ..mechanisms._tree_place import cast_arrays
from ._equalities import Weld
from ._rays import Ray, Scene
from ._sensor_kinds import (
    ACCELERATED,
    PRESSED,
    READ,
    STOPPED,
    TRANSMITTED,
    RobotState,
    Sensor,
    SensorTable,
    finish_reading,
    pick,
)
from ._state import Conversion

if TYPE_CHECKING:
    from .._run._trajectory import Trajectory

_GIVEN = ("a", "multipliers", "contacts", "noise")
_REMEDY = {
    "a": "give a, as of a run (robot.sensors.along(run))",
    "multipliers": "give those of the run that has a, or leave out a",
    "contacts": "give the forces of contacts, as a run's contacts.force (robot.sensors.along(run))",
}


class _Evaluate(NamedTuple):
    """What sensors read at a state, of which some parts may be left out; of rangefinders the rays."""

    parts: tuple[str, ...]  # the names of the arrays behind v, of `_GIVEN`
    rows: tuple[tuple[str, int, int], ...]  # which of the forces of contacts are on which contact, by name

    def __call__(self, sensors: "Sensors", t: Time, q: Coordinates, v: Velocities, *parts: Array) -> Any:
        of = dict.fromkeys(_GIVEN) | dict(zip(self.parts, parts, strict=True))
        forces = {} if of["contacts"] is None else {name: of["contacts"][i:j] for name, i, j in self.rows}
        own, parts_of = sensors.chosen_sensors, (sensors.tree, sensors.conversion, sensors.table)
        at = RobotState(own, *parts_of, t, q, v, of["a"], of["multipliers"], forces)
        readings, rays, start = {}, {}, 0
        for sensor in own:
            x = READ[sensor.kind](at, sensor)
            noise = None if of["noise"] is None else of["noise"][start : start + sensor.size]
            start += sensor.size
            if sensor.kind == "rangefinder":
                rays[sensor.name] = (x, noise)
            else:
                readings[sensor.name] = finish_reading(sensor, x, noise)
        return (readings, rays, at.shifts) if rays else (readings, {}, ())


@final
@equal_to_itself
class Sensors(eqx.Module):
    """The sensors of a robot's file; `robot.sensors`.

    Readings have MuJoCo's definitions and units, but for contacts and stops, which are rigid, and equalities, which are
    exact. They are arrays for `jit`, `vmap` and derivatives, also by the numbers of `with_parameters`.
    """

    tree: TreeSystem
    conversion: Conversion
    table: SensorTable
    chosen: tuple[int, ...] = eqx.field(static=True)

    @property
    def chosen_sensors(self) -> tuple[Sensor, ...]:
        """What is known of each of them."""
        return tuple(self.table.sensors[i] for i in self.chosen)

    @property
    def names(self) -> tuple[str, ...]:
        """What they are called; those without a name in the file have a number."""
        return tuple(x.name for x in self.chosen_sensors)

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of each, as its element in the file, such as `"gyro"`."""
        return {x.name: x.kind for x in self.chosen_sensors}

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each entry of `vector`."""
        of = lambda x: (x.name,) if x.size == 1 else make_indexed_names(x.name, x.size)
        return tuple(label for x in self.chosen_sensors for label in of(x))

    @property
    def noise(self) -> dict[str, float]:
        """The standard deviations that the file gives, of those that have one."""
        return {x.name: x.noise for x in self.chosen_sensors if x.noise}

    @property
    def cutoff(self) -> dict[str, float]:
        """How large readings become at most, of those that have a limit."""
        return {x.name: x.cutoff for x in self.chosen_sensors if x.cutoff > 0}

    def __len__(self) -> int:
        return len(self.chosen)

    def __repr__(self) -> str:
        """A line for each kind."""
        kinds: dict[str, list[str]] = {}
        for x in self.chosen_sensors:
            kinds.setdefault(x.kind, []).append(x.name)
        lines = [f"{kind} ({len(names)}): {', '.join(names)}" for kind, names in kinds.items()]
        return "\n".join([f"{len(self)} sensors", *(f"  {line}" for line in lines)])

    def _repr_html_(self) -> str:
        return html_of(self)

    def only(self, *names: str) -> "Sensors":
        """Some of them, in this order; nothing is computed for the others.

        **Arguments:**

        - `names`: of sensors, or kinds, such as `"gyro"`, for all of a kind.

        **Raises:** `InputError` for a name that is not known, and a sensor of the file that is not built.
        """
        own, refused = self.names, {name: (kind, why) for name, kind, why in self.table.refused}
        chosen: list[int] = []
        for name in names:
            if name in refused and name not in own:
                kind, why = refused[name]
                raise InputError(f"'{name}', a {kind}, is not there: {why}.")
            which = [
                i for i, x in zip(self.chosen, self.chosen_sensors, strict=True) if name in (x.name, x.kind)
            ]
            exact = [i for i in which if self.table.sensors[i].name == name] or which
            if not exact:
                raise unknown_name("sensor", name, [*own, *dict.fromkeys(self.kinds.values())])
            chosen += [i for i in exact if i not in chosen]
        return Sensors(self.tree, self.conversion, self.table, tuple(chosen))

    def __call__(
        self,
        t: Time | float,
        q: Numbers,
        v: Numbers,
        a: Numbers | None = None,
        contacts: Numbers | None = None,
        multipliers: Numbers | None = None,
        *,
        key: Array | None = None,
    ) -> dict[str, Array]:
        """What they read at a state, by name.

        **Arguments:**

        - `t`: time [s].
        - `q`, `v`: a state of the tree.
        - `a`: the acceleration v' (n,), for accelerometers, forces and torques; by default that of the robot. Contacts,
          stops and dry friction decide it too, so a robot that has such needs it given.
        - `contacts`: the forces on the rows of contacts, as of a run's `contacts.force` (m,), for touch, forces and
          torques, and forces of stops.
        - `multipliers`: of a run, of the rows of loops and other equalities (m,), which go with a given `a`.
        - `key`: a random key, to add the file's noise; by default there is none.

        **Returns:** a number or an array each, as in MuJoCo's `sensordata`.
        """
        q = real_array("q", q)
        as_given = lambda name, x: real_array(name, x).astype(q.dtype)
        state = as_given("t", t), q, as_given("v", v)
        optional = {"a": a, "contacts": contacts, "multipliers": multipliers}
        given = {name: as_given(name, x) for name, x in optional.items() if x is not None}
        n_q, n = len(self.tree.labels), len(self.tree.velocity_labels)
        shapes = {"t": (), "q": (n_q,), "v": (n,), "a": (n,)}
        for name, x in {**dict(zip("tqv", state, strict=True)), **given}.items():
            _require_shape(name, x, shapes.get(name, x.shape))
        if a is None and (needy := pick(self.chosen_sensors, ACCELERATED)):
            if inequalities := unilateral(self.tree.constraints):
                raise InputError(
                    f"{', '.join(needy[:3])} need the acceleration, which {inequalities[0].name} decide too: "
                    f"{_REMEDY['a']}, or leave them out by `only`."
                )
            given |= _own_acceleration(self.tree, *state)
        if key is not None:
            given["noise"] = jax.random.normal(key, (len(self.labels),), q.dtype)
        return self._read(state, given)

    def vector(
        self,
        t: Time | float,
        q: Numbers,
        v: Numbers,
        a: Numbers | None = None,
        contacts: Numbers | None = None,
        multipliers: Numbers | None = None,
        *,
        key: Array | None = None,
    ) -> Array:
        """The readings one after the other, such as for `observe` of an `Environment`; `labels` says which is which.

        **Arguments:** as for the readings by name.

        **Returns:** a vector.

        **Raises:** `InputError` likewise.
        """
        readings = self(t, q, v, a, contacts, multipliers, key=key)
        parts = [jnp.ravel(readings[name]) for name in self.names]
        return jnp.concatenate(parts) if parts else jnp.zeros(0)

    def along(self, run: "Trajectory", *, key: Array | None = None) -> dict[str, Array]:
        """What they read at the saved times of a run, with its accelerations, contacts and multipliers.

        **Arguments:**

        - `run`: a `Trajectory` of this robot, of k times.
        - `key`: as for the readings at a state.

        **Returns:** arrays with the times in front (k, ...); NaN at times that the run did not reach.

        **Raises:** `InputError` for a batch of runs, and a run with another number of coordinates or velocities.
        """
        if run.t.ndim != 1:
            raise InputError("this is a batch of runs: give jax.vmap(robot.sensors.along) the batch.")
        _require_shape("the run's q", run.q, (len(run), len(self.tree.labels)))
        _require_shape("the run's v", run.v, (len(run), len(self.tree.velocity_labels)))
        given = {"a": run.a, "multipliers": run.multipliers}
        if run.contacts is not None:
            given["contacts"] = run.contacts.force
        if key is not None:
            given["noise"] = jax.random.normal(key, (len(run), len(self.labels)), run.q.dtype)
        return self._read((run.t, run.q, run.v), given)

    # --- How they are read

    def _needed(self, given: dict[str, Array]) -> dict[str, Array]:
        own, contacts, loops = self.chosen_sensors, self.tree.mechanism.contacts, self.tree.loops
        shapes, stops = (any(isinstance(x, kind) for x in contacts) for kind in (Contact, Limit))
        closed = any(x.name in dict(self.table.ends) for x in loops)
        pressed = PRESSED if shapes else ()
        needy = {
            "a": pick(own, ACCELERATED),
            "multipliers": pick(own, TRANSMITTED if closed else ()),
            "contacts": pick(own, (*pressed, *(STOPPED if stops else ()))),
        }
        for name, who in needy.items():
            if who and name not in given:
                raise InputError(
                    f"{', '.join(who[:3])} need {name}: {_REMEDY[name]}, or leave them out by `only`."
                )
        rows = sum({Connect: 3, Weld: 6}.get(type(x), 1) for x in loops)
        if needy["multipliers"] and (count := given["multipliers"].shape[-1]) < rows:
            raise InputError(f"multipliers has {count} entries; the loops alone have {rows} rows.")
        return {name: x for name, x in given.items() if needy.get(name, True)}

    @in_full_precision
    def _read(self, state: tuple[Array, Array, Array], given: dict[str, Array]) -> dict[str, Array]:
        """RobotState one state, or at several, which then are along the first axes."""
        given, one = self._needed(given), state[0].ndim == 0
        rows: tuple[tuple[str, int, int], ...] = ()
        if "contacts" in given:
            first: Any = state if one else [x[0] for x in state]
            rows = _rows_of_contacts(self.tree, *first)
            _require_shape("contacts", given["contacts"], (*state[0].shape, rows[-1][2]))
        evaluate = _Evaluate(tuple(given), rows)
        bare = eqx.tree_at(lambda x: x.table.scene, self, Scene((), ()))
        arrays = (*state, *given.values())
        if is_traced((self, arrays)):
            at = lambda *x: evaluate_by_code(evaluate, bare, *x)
            readings, rays, shifts = at(*arrays) if one else jax.vmap(at)(*arrays)
        else:
            stacked = [np.asarray(x)[None] if one else np.asarray(x) for x in arrays]
            readings, rays, shifts = evaluate_at_states(evaluate, bare, *stacked)
            if one:
                readings, rays, shifts = jax.tree.map(lambda x: x[0], (readings, rays, shifts))
            readings = jax.tree.map(as_jax, readings)
        if rays:
            readings |= (_cast_at_one if one else _cast_at_each)(self, rays, *shifts)
        return {name: readings[name] for name in self.names}


def _require_shape(name: str, x: Array, shape: tuple[int, ...]) -> None:
    if x.shape != shape:
        raise InputError(f"{name} has shape {x.shape}; this robot needs {shape}.")


def _own_acceleration(tree: TreeSystem, t: Array, q: Array, v: Array) -> dict[str, Array]:
    """v' and the multipliers; within `jit` by the code of a run, where there is any."""
    formula = UdwadiaKalaba()
    if is_traced((tree, t, q, v)):
        model = Model(tree, formula, NoStabilizer())
        model, _ = translate_model(model, dfx.Tsit5(), t, q, v, automatic=True)
        if model.is_solved:
            told = model.observed(t, q, v)
            return {name: told[name] for name in ("a", "multipliers")}
    motion = acceleration_at(formula, tree, t, q, v)
    return {"a": motion.a, "multipliers": motion.multipliers}


def _rows_of_contacts(tree: TreeSystem, t: Array, q: Array, v: Array) -> tuple[tuple[str, int, int], ...]:
    layout = layout_of(tree, t, q, v)[0]
    ends = np.cumsum([0, *(int(normal) + tangents for normal, tangents in layout.contacts)]).tolist()
    return tuple(zip(layout.names, ends, ends[1:], strict=False))


def _cast(sensors: Sensors, rays: dict[str, Any], R: Array, shift: Array) -> dict[str, Array]:
    own = [x for x in sensors.chosen_sensors if x.name in rays]
    lines = jnp.stack([rays[x.name][0] for x in own])
    bodies = jnp.asarray(np.array([x.bodies[0] for x in own]))
    scene = cast_arrays(sensors.table.scene, R.dtype)
    far = jax.vmap(lambda line, body: scene.distance(Ray(line[0], line[1], body), R, shift))(lines, bodies)
    return {x.name: finish_reading(x, far[i], rays[x.name][1]) for i, x in enumerate(own)}


_cast_at_one = eqx.filter_jit(_cast)
_cast_at_each = eqx.filter_jit(eqx.filter_vmap(_cast, in_axes=(None, 0, 0, 0)))
