"""The sensors of a file, and what each kind reads at one state.

Definitions are MuJoCo's (its XML reference, "sensor"). With x, v and a of a place, and R the axes of a frame there,

    gyro R^T omega,    velocimeter R^T v,    accelerometer R^T (a - g).

Force and torque are what goes from the parent into the body of a site: what accelerates all behind it, less gravity,
contacts and loops (Newton and Euler).
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._lie import quaternion_product
from .._misc._types import Coordinates, Time, Velocities
from ..mechanisms import AbstractShape, Limit, TreeSystem
from ..mechanisms._contact_pairs import Meeting, meet_each
from ..mechanisms._contact_rows import contact_frames
from ..mechanisms._mechanism import Twists
from ..mechanisms._placement import norm, rate_of
from ..mechanisms._tree_loops import loop_wrenches
from ..mechanisms._tree_motion import Rates, cross, outwards
from ..mechanisms._tree_place import TreeAt, cast_arrays, twists_by_name
from ._actuators import Actuators
from ._contact_sensors import ContactMatch, read_contacts
from ._lengths import Lengths, Path
from ._passive import BallSpring, JointSprings
from ._rays import Scene, first_hit, is_within
from ._reference import LEAST
from ._state import Conversion, conjugate, rotation_vector
from ._tendons import FixedTendon, SpatialTendon


class Sensor(NamedTuple):
    """A sensor of a file."""

    name: str
    # `kind`: its element, such as `"gyro"`; `size`: how many numbers it reads.
    kind: str
    size: int
    # `cutoff`, `noise`: as the file gives them.
    cutoff: float
    noise: float
    data: str  # `"real"`, `"positive"`, `"axis"` or `"quaternion"`
    # `frame`, `reference`: places in the table's frames; -1 for none. Of a joint's limit, `reference` is its
    # velocity.
    frame: int = -1
    reference: int = -1
    # `number`: of its joint's coordinate or velocity, its tendon or its actuator; `of`: that joint's or tendon's
    # name.
    number: int = -1
    # `members`: the places of what its subtree has, in the table's pieces, or of shapes in its pairs; of a tendon its
    # actuators; `turned`: which of the pairs are the other way round; `bodies`: that of a touch sensor, or those of
    # the subtree, by the file's numbers.
    members: tuple[int, ...] = ()
    bodies: tuple[int, ...] = ()
    # `shape`, `numbers`: of a zone kind and size; of a limit the range, the margin and where the joint starts; of a
    # camera its focal lengths and half its picture [pixels].
    shape: str = ""
    numbers: tuple[float, ...] = ()
    of: str = ""
    turned: tuple[bool, ...] = ()
    # `matches`: what a contact sensor may find; `parts`: what it reads of those that are chosen by `reduce`.
    matches: tuple[ContactMatch, ...] = ()
    parts: tuple[str, ...] = ()
    reduce: str = ""


@final
class SensorTable(eqx.Module):
    """All sensors of a robot, and what they are on, in the reference posture."""

    sensors: tuple[Sensor, ...] = eqx.field(static=True)
    # `refused`: those that are not built, with the reason.
    refused: tuple[tuple[str, str, str], ...] = eqx.field(static=True)
    # `carriers`: of the frames: numbers of the tree's bodies plus 1; 0 for the ground.
    carriers: tuple[int, ...] = eqx.field(static=True)
    # `places`, `axes`, `quaternions`: of the frames (k, 3), (k, 3, 3), (k, 4).
    places: Float[Array, "k 3"]
    axes: Float[Array, "k 3 3"]
    quaternions: Float[Array, "k 4"]
    # `pieces`: behind the bodies of the tree, parts of them and of the ground: what carries each.
    pieces: tuple[int, ...] = eqx.field(static=True)
    # `masses`, `centres`, `inertias`: theirs, about their centres, in world axes.
    masses: Float[Array, " p"]
    centres: Float[Array, "p 3"]
    inertias: Float[Array, "p 3 3"]
    # `ends`: the file's two bodies of each contact and of each loop, by name.
    ends: tuple[tuple[str, tuple[int, int]], ...] = eqx.field(static=True)
    lengths: dict[int, Lengths | Path]  # of tendons, by number
    # `gravity`, `magnetic`: fields; `still`: the potential of what stands still [J].
    gravity: Float[Array, "3"]
    magnetic: Float[Array, "3"]
    still: Float[Array, ""]
    # `scene`: what rangefinders see; `pairs`: the shapes of which it is told how far they are apart.
    scene: Scene
    pairs: tuple[tuple[AbstractShape, AbstractShape], ...]


class Drive(NamedTuple):
    """What an actuator says of itself."""

    length: Float[Array, ""]
    rate: Float[Array, ""]
    force: Float[Array, ""]


class RobotState:
    """A robot at one state; what is not asked for is not computed.

    - `sensors`: those to be read.
    - `a`: v'; None where no sensor needs it.
    - `multipliers`: of the loops' rows, and those behind them; `forces`: on the rows of each contact, by name.
    """

    def __init__(
        self,
        sensors: tuple[Sensor, ...],
        tree: TreeSystem,
        conversion: Conversion,
        table: SensorTable,
        t: Time,
        q: Coordinates,
        v: Velocities,
        a: Velocities | None,
        multipliers: Array | None,
        forces: dict[str, Array],
    ):
        self.sensors, self.tree, self.conversion = sensors, tree, conversion
        self.table = cast_arrays(table, q.dtype)
        self.t, self.q, self.v, self.a, self.multipliers, self.forces = t, q, v, a, multipliers, forces

    # --- Where things are, and how they move

    @functools.cached_property
    def placed(self) -> TreeAt:
        return TreeAt(self.tree.mechanism, self.tree.order.layout, self.q)

    @functools.cached_property
    def _frames(self) -> np.ndarray:
        """The frames of the ground and of the bodies."""
        return np.array([0, *self.tree.order.layout.frames], int)

    @functools.cached_property
    def shifts(self) -> tuple[Float[Array, "n 3 3"], Float[Array, "n 3"]]:
        """R and s of the ground and the bodies: a place X of the reference posture is at R X + s."""
        posture, points = self.placed.posture, self.placed.chains.point
        points = jnp.concatenate([jnp.zeros_like(points[:1]), points])[self._frames]
        R = posture.rotation[self._frames]
        at = posture.origin[self._frames] + posture.slip[self._frames]
        return R, at - jnp.einsum("nab,nb->na", R, points)

    def _locate(self, carriers: tuple[int, ...], X: Float[Array, "k 3"]) -> Float[Array, "k 3"]:
        R, shift = (x[np.array(carriers, int)] for x in self.shifts)
        return jnp.einsum("kab,kb->ka", R, X) + shift

    def motion_of(self, carriers: tuple[int, ...], x: Float[Array, "k 3"]) -> Rates:
        """Of places of the ground and of bodies."""
        posture, frames = self.placed.posture, self._frames[np.array(carriers, int)]
        return self.placed.chains.rates(posture, self.v, self.a).at(frames, x - posture.origin[frames])

    @functools.cached_property
    def x(self) -> Float[Array, "k 3"]:
        """Where the frames are [m]."""
        return self._locate(self.table.carriers, self.table.places)

    @functools.cached_property
    def R(self) -> Float[Array, "k 3 3"]:
        """The axes of the frames, as columns."""
        return jnp.einsum("kab,kbc->kac", self.shifts[0][np.array(self.table.carriers, int)], self.table.axes)

    @functools.cached_property
    def motion(self) -> Rates:
        """Of the frames."""
        return self.motion_of(self.table.carriers, self.x)

    @functools.cached_property
    def felt(self) -> Float[Array, "k 3"]:
        """a - g of the frames."""
        return self.motion.acceleration - self.table.gravity[None]

    @functools.cached_property
    def quaternions(self) -> Float[Array, "k 4"]:
        """The rotations of the frames, continuous in q."""
        layout, chains, parts = self.tree.order.layout, self.placed.chains, []
        for element in layout.elements:
            if element.kind == "ball":
                p = self.q[element.q : element.q + 4]
                parts.append(p / jnp.sqrt(jnp.dot(p, p)))
            else:
                axis = chains.angular[element.v]
                half = 0.5 * jnp.dot(axis, axis) * self.q[element.q]  # of a slide zero
                parts.append(jnp.concatenate([jnp.cos(half)[None], jnp.sin(half) * axis]))
        still = jnp.zeros(4, self.q.dtype).at[0].set(1.0)
        turned = outwards(layout.before, quaternion_product, still, jnp.stack(parts))
        of_frames = turned[self._frames[np.array(self.table.carriers, int)]]
        return jax.vmap(quaternion_product)(of_frames, self.table.quaternions)

    @functools.cached_property
    def meetings(self) -> dict[int, Meeting]:
        """Where shapes are nearest, by their place in the table."""
        own = sorted({i for s in self.sensors if s.kind in DISTANT for i in s.members})
        places, pairs = self.placed.placements, [self.table.pairs[i] for i in own]
        met = meet_each([(a, b, places[a.body], places[b.body]) for a, b in pairs])
        return dict(zip(own, met, strict=True))

    # --- Coordinates, tendons and actuators

    @functools.cached_property
    def qpos(self) -> Array:
        return self.conversion.positions(self.q)

    @functools.cached_property
    def qvel(self) -> Array:
        return self.conversion.rates(self.v)

    @functools.cached_property
    def twists(self) -> Twists:
        return twists_by_name(self.placed.mechanism.bodies, self.placed.rates(self.v).twist)

    @functools.cached_property
    def on_coordinates(self) -> tuple[Any, ...]:
        return cast_arrays(self.tree.on_coordinates, self.q.dtype)

    def tendon(self, number: int) -> tuple[Array, Array]:
        """Length and rate."""
        of = self.table.lengths[number]
        if isinstance(of, Lengths):
            return of(self.q)[0], of.rate(self.v)[0]
        places = [self.placed.placements[x] for x in of.bodies]
        return of(*places), rate_of(of, places, [self.twists[x] for x in of.bodies])

    @functools.cached_property
    def drives(self) -> dict[int, Drive]:
        """The actuators that are used, by their numbers."""
        by_number: dict[int, Drive] = {}
        for load, motion in self._actuators:
            each = zip(load.lengths_of(motion), load.rate(motion), load.effort(motion), strict=False)
            by_number |= {k: Drive(*x) for k, x in zip(load.which, each, strict=False)}
        return by_number

    @functools.cached_property
    def driven(self) -> Velocities:
        """The generalized force of all actuators."""
        forces = [motion.generalized(load.rate, load.effort(motion)) for load, motion in self._actuators]
        return sum(forces, jnp.zeros_like(self.v))

    @functools.cached_property
    def _actuators(self) -> list[Any]:
        return [x for x in self.tree.motions(self.t, self.q, self.v) if isinstance(x[0], Actuators)]

    def stop(self, sensor: Sensor) -> tuple[Array, Array]:
        """The gap of a limit within its margin, less that, and its rate; zero elsewhere."""
        low, high, margin, start = sensor.numbers
        for x in self.placed.mechanism.contacts:  # whose stops may have been moved
            if isinstance(x, Limit) and x.name == sensor.of:
                low = low if x.lower is None else x.lower + start
                high = high if x.upper is None else x.upper + start
        if sensor.kind.startswith("tendon"):
            x, rate = self.tendon(sensor.number)
        elif sensor.shape == "ball":
            turn = rotation_vector(self.qpos[sensor.number : sensor.number + 4])
            x, v = norm(turn), self.qvel[sensor.reference : sensor.reference + 3]
            rate = jnp.dot(turn, v) / jnp.where(x > 0, x, 1.0)
        else:
            x, rate = self.qpos[sensor.number], self.qvel[sensor.reference]
        lower, upper = x - low - margin, high - x - margin
        gap = jnp.where(lower < 0, lower, jnp.where(upper < 0, upper, 0.0))
        return gap, jnp.where(lower < 0, rate, jnp.where(upper < 0, -rate, 0.0))

    # --- Masses, and what goes into them

    @functools.cached_property
    def masses(self) -> tuple[Array, Array, Array]:
        """Masses, places and inertias of the pieces, in world axes."""
        chains, table = self.placed.chains, self.table
        mass = jnp.concatenate([chains.mass, table.masses])
        x = self._locate(self._carriers, jnp.concatenate([chains.centre, table.centres]))
        R, own = self.shifts[0][np.array(self._carriers, int)], [chains.inertia, table.inertias]
        return mass, x, jnp.einsum("pab,pbc,pdc->pad", R, jnp.concatenate(own), R)

    @property
    def _carriers(self) -> tuple[int, ...]:
        return (*range(1, len(self.tree.bodies) + 1), *self.table.pieces)

    @functools.cached_property
    def moving(self) -> Rates:
        return self.motion_of(self._carriers, self.masses[1])

    def centre(self, members: tuple[int, ...], of: Array) -> Float[Array, "3"]:
        """The mean of what pieces have, by their masses."""
        mass = self.masses[0][np.array(members, int)]
        return mass @ of[np.array(members, int)] / jnp.sum(mass)

    def angular_momentum(self, members: tuple[int, ...]) -> Float[Array, "3"]:
        """Of pieces, about their centre [kg m^2/s]."""
        own = np.array(members, int)
        mass, x, inertia = (y[own] for y in self.masses)
        d = x - self.centre(members, self.masses[1])[None]
        u = self.moving.velocity[own] - self.centre(members, self.moving.velocity)[None]
        spin = jnp.einsum("pab,pb->pa", inertia, self.moving.omega[own])
        return jnp.sum(spin + cross(d, mass[:, None] * u), axis=0)

    @functools.cached_property
    def _asked(self) -> tuple[Array, Array]:
        """The force that each piece takes, without gravity, and its moment about the origin."""
        mass, x, inertia = self.masses
        turned = lambda omega: jnp.einsum("pab,pb->pa", inertia, omega)
        force = mass[:, None] * (self.moving.acceleration - self.table.gravity[None])
        torque = turned(self.moving.alpha) + cross(self.moving.omega, turned(self.moving.omega))
        return force, torque + cross(x, force)

    @functools.cached_property
    def _given(self) -> list[tuple[tuple[int, int], Array, Array]]:
        """What each contact and each loop does to the second of two bodies: force, and moment about the origin."""
        actions, ends = [], dict(self.table.ends)
        for name, x in self.contact_places.items():
            force, moment = x.effort(self.forces[name])
            actions.append((ends[name], force, moment + cross(x.point, force)))
        if self.multipliers is not None:
            own, places = self.placed, self.placed.placements
            wrenches = loop_wrenches(own.mechanism, places, self.t, own.rates(self.v).twist, self.multipliers)
            for joint in self.tree.loops:
                if joint.name in ends:
                    of = wrenches[joint.name][1]
                    moment = of.omega + cross(places[joint.child].p, of.velocity)
                    actions.append((ends[joint.name], of.velocity, moment))
        return actions

    @functools.cached_property
    def contact_places(self) -> dict[str, Any]:
        if not any(name in self.forces for name, _ in self.table.ends):
            return {}
        return contact_frames(self.tree, self.t, self.q)

    def transmitted_wrench(self, sensor: Sensor) -> tuple[Float[Array, "3"], Float[Array, "3"]]:
        """The force that goes into a subtree, and its moment about a frame, in world axes."""
        force, moment = (jnp.sum(x[np.array(sensor.members, int)], axis=0) for x in self._asked)
        for (first, second), its_force, its_moment in self._given:
            sign = float(first in sensor.bodies) - float(second in sensor.bodies)
            if sign:
                force, moment = force + sign * its_force, moment + sign * its_moment
        return force, moment - cross(self.x[sensor.frame], force)

    def pressing_force(self, sensor: Sensor) -> Float[Array, ""]:
        """The normal forces of contacts of a body whose normal meets a zone."""
        total, (body,), ends = jnp.zeros((), self.q.dtype), sensor.bodies, dict(self.table.ends)
        size, back = jnp.asarray(sensor.numbers, self.q.dtype), self.R[sensor.frame].T
        for name, x in self.contact_places.items():
            if body in ends[name]:
                out = x.axes[0] if body == ends[name][0] else -x.axes[0]
                hit = first_hit(sensor.shape, size, back @ (x.point - self.x[sensor.frame]), back @ out)
                total = total + jnp.where(jnp.isfinite(hit), jnp.maximum(self.forces[name][0], 0.0), 0.0)
        return total

    def potential(self) -> Float[Array, ""]:
        """That of gravity and of springs [J]."""
        mass, x, _ = self.masses
        bodies = slice(len(self.tree.bodies))
        total = self.table.still - jnp.sum(mass[bodies] * (x[bodies] @ self.table.gravity))
        for load in self.on_coordinates:
            if isinstance(load, JointSprings | BallSpring | FixedTendon):
                total = total + load.potential(self.q)
        for load in self.placed.mechanism.loads:
            if isinstance(load, SpatialTendon):
                total = total + load.potential(self.placed.mechanism.by_name, self.placed.placements)
        return total

    def kinetic(self) -> Float[Array, ""]:
        """v^T M v / 2 [J]."""
        v = self.v.at[len(self.v) - len(self.tree.state_labels) :].set(0.0)  # states have no energy
        return 0.5 * jnp.dot(v, self.tree.mass_matrix(self.t, self.q) @ v)


# --- What each kind reads


def _in_frame(at: RobotState, s: Sensor, of: Array) -> Array:
    """A world vector in the axes of a sensor's frame."""
    return at.R[s.frame].T @ of


def _in_reference(at: RobotState, s: Sensor, of: Array) -> Array:
    """A world vector in the axes of the frame it is told in."""
    return of if s.reference < 0 else at.R[s.reference].T @ of


def _position(at: RobotState, s: Sensor) -> Array:
    return at.x[s.frame] if s.reference < 0 else _in_reference(at, s, at.x[s.frame] - at.x[s.reference])


def _quaternion(at: RobotState, s: Sensor) -> Array:
    own = at.quaternions[s.frame]
    return own if s.reference < 0 else quaternion_product(conjugate(at.quaternions[s.reference]), own)


def _angular_velocity(at: RobotState, s: Sensor) -> Array:
    omega = at.motion.omega
    return _in_reference(at, s, omega[s.frame] if s.reference < 0 else omega[s.frame] - omega[s.reference])


def _velocity(at: RobotState, s: Sensor) -> Array:
    v = at.motion.velocity[s.frame]
    if s.reference < 0:
        return v
    carried = cross(at.motion.omega[s.reference], at.x[s.frame] - at.x[s.reference])
    return _in_reference(at, s, v - at.motion.velocity[s.reference] - carried)


def _projection(at: RobotState, s: Sensor) -> Array:
    """Where a place is in a picture [pixels]."""
    fx, fy, half_width, half_height = s.numbers
    x, y, z = _in_reference(at, s, at.x[s.frame] - at.x[s.reference])
    z = jnp.where(jnp.abs(z) < LEAST, jnp.where(z < 0, -LEAST, LEAST), z)
    return jnp.stack([half_width - fx * x / z, half_height + fy * y / z])


def _within(at: RobotState, s: Sensor) -> Array:
    size, local = jnp.asarray(s.numbers, at.q.dtype), _in_reference(at, s, at.x[s.frame] - at.x[s.reference])
    return is_within(s.shape, size, local).astype(at.q.dtype)


def _nearest(at: RobotState, s: Sensor) -> tuple[Array, Array, Array]:
    """The least gap of some shapes within the cutoff, else that; and from where to where it is, else zero."""
    met = [at.meetings[i] for i in s.members]
    gaps, points = (jnp.concatenate([getattr(m, x) for m in met]) for x in ("gap", "point"))
    signs = [-m.normal if turned else m.normal for m, turned in zip(met, s.turned, strict=True)]
    normals = jnp.concatenate(signs)
    k = jnp.argmin(gaps)
    near, across = gaps[k] < s.cutoff, 0.5 * gaps[k] * normals[k]
    end = lambda x: jnp.where(near, x, 0.0)
    return jnp.where(near, gaps[k], s.cutoff), end(points[k] - across), end(points[k] + across)


def _normal(at: RobotState, s: Sensor) -> Array:
    _, start, end = _nearest(at, s)
    size = norm(end - start)
    return (end - start) / jnp.where(size > 0, size, 1.0)


def _limit_force(at: RobotState, s: Sensor) -> Array:
    rows = [at.forces[name][0] for name in (f"{s.of}.lower", f"{s.of}.upper") if name in at.forces]
    return sum(rows, jnp.zeros((), at.q.dtype))


def _on_tendon(at: RobotState, s: Sensor) -> Array:
    return sum((at.drives[k].force for k in s.members), jnp.zeros((), at.q.dtype))


READ: dict[str, Callable[[RobotState, Sensor], Array]] = {
    "gyro": lambda at, s: _in_frame(at, s, at.motion.omega[s.frame]),
    "velocimeter": lambda at, s: _in_frame(at, s, at.motion.velocity[s.frame]),
    "accelerometer": lambda at, s: _in_frame(at, s, at.felt[s.frame]),
    "magnetometer": lambda at, s: _in_frame(at, s, at.table.magnetic),
    "force": lambda at, s: _in_frame(at, s, at.transmitted_wrench(s)[0]),
    "torque": lambda at, s: _in_frame(at, s, at.transmitted_wrench(s)[1]),
    "touch": RobotState.pressing_force,
    "contact": lambda at, s: read_contacts(at, s),
    "jointpos": lambda at, s: at.qpos[s.number],
    "jointvel": lambda at, s: at.qvel[s.number],
    "ballquat": lambda at, s: at.qpos[s.number : s.number + 4],
    "ballangvel": lambda at, s: at.qvel[s.number : s.number + 3],
    "tendonpos": lambda at, s: at.tendon(s.number)[0],
    "tendonvel": lambda at, s: at.tendon(s.number)[1],
    "actuatorpos": lambda at, s: at.drives[s.number].length,
    "actuatorvel": lambda at, s: at.drives[s.number].rate,
    "actuatorfrc": lambda at, s: at.drives[s.number].force,
    "jointactuatorfrc": lambda at, s: at.driven[s.number],
    "tendonactuatorfrc": _on_tendon,
    "jointlimitpos": lambda at, s: at.stop(s)[0],
    "jointlimitvel": lambda at, s: at.stop(s)[1],
    "jointlimitfrc": _limit_force,
    "tendonlimitpos": lambda at, s: at.stop(s)[0],
    "tendonlimitvel": lambda at, s: at.stop(s)[1],
    "tendonlimitfrc": _limit_force,
    "framepos": _position,
    "framequat": _quaternion,
    "framexaxis": lambda at, s: _in_reference(at, s, at.R[s.frame, :, 0]),
    "frameyaxis": lambda at, s: _in_reference(at, s, at.R[s.frame, :, 1]),
    "framezaxis": lambda at, s: _in_reference(at, s, at.R[s.frame, :, 2]),
    "framelinvel": _velocity,
    "frameangvel": _angular_velocity,
    "framelinacc": lambda at, s: at.felt[s.frame],
    "frameangacc": lambda at, s: at.motion.alpha[s.frame],
    "subtreecom": lambda at, s: at.centre(s.members, at.masses[1]),
    "subtreelinvel": lambda at, s: at.centre(s.members, at.moving.velocity),
    "subtreeangmom": lambda at, s: at.angular_momentum(s.members),
    "camprojection": _projection,
    "insidesite": _within,
    "distance": lambda at, s: _nearest(at, s)[0],
    "normal": _normal,
    "fromto": lambda at, s: jnp.concatenate(_nearest(at, s)[1:]),
    "clock": lambda at, s: at.t,
    "e_potential": lambda at, s: at.potential(),
    "e_kinetic": lambda at, s: at.kinetic(),
    # Their rays are cast apart, by `Scene`.
    "rangefinder": lambda at, s: jnp.stack([at.x[s.frame], at.R[s.frame, :, 2]]),
}
"""What each kind reads at a state."""

ACCELERATED = ("accelerometer", "framelinacc", "frameangacc", "force", "torque")
TRANSMITTED = ("force", "torque")
PRESSED = (*TRANSMITTED, "touch", "contact")
DISTANT = ("distance", "normal", "fromto")
STOPPED = ("jointlimitfrc", "tendonlimitfrc")


def finish_reading(sensor: Sensor, x: Array, noise: Array | None) -> Array:
    """A reading with noise, if there is any (size,), within the cutoff."""
    if noise is not None and sensor.noise:
        off = sensor.noise * noise
        if sensor.data == "quaternion":  # turned by a small angle
            turn = jnp.concatenate([jnp.ones_like(off[:1]), 0.5 * off[:3]])
            x = quaternion_product(x, turn / jnp.sqrt(jnp.dot(turn, turn)))
        else:
            x = x + off.reshape(x.shape)
            x = x / jnp.sqrt(jnp.dot(x, x)) if sensor.data == "axis" else x
    if sensor.cutoff <= 0 or sensor.data in ("axis", "quaternion") or sensor.kind == "fromto":
        return x
    x = jnp.minimum(x, sensor.cutoff)
    return x if sensor.data == "positive" else jnp.maximum(x, -sensor.cutoff)


def pick(sensors: Iterable[Sensor], kinds: Iterable[str]) -> list[str]:
    """The names of those of some kinds."""
    return [x.name for x in sensors if x.kind in kinds]
