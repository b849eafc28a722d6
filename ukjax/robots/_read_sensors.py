"""Reads the sensors of a model: what they are on, which are built, and what the report says of the others."""

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, final

import jax.numpy as jnp
import numpy as np

from .._misc._types import as_jax
from ..mechanisms import GROUND, AbstractShape, Limit, TreeSystem
from ._actuators import Actuators
from ._bodies import joints_by_kind
from ._closures import Closure
from ._contact_sensors import PARTS, REDUCTIONS, match_contacts
from ._equalities import equality_name
from ._geoms import is_offered, kind_of_geom, shape_of
from ._lengths import Lengths, Path
from ._passive import GravityCompensation
from ._rays import SOLID, Mesh, Scene, Solids
from ._reference import LEAST, Reference, is_given, mujoco, remove_rounding, word_of
from ._report import Feature, RefusedError, Row, features
from ._sensor_kinds import DISTANT, PRESSED, READ, STOPPED, Sensor, SensorTable

_WHY = {
    "tactile": "it reads how deep bodies are in each other, and these are rigid; `touch` and `contact` sensors are built",
    "plugin": "plugins are not run",
    "user": "it is computed by a callback of the file's program",
}
_ELEMENTS = {
    "geomdist": "distance",
    "geomnormal": "normal",
    "geomfromto": "fromto",
    "jointactfrc": "jointactuatorfrc",
    "tendonactfrc": "tendonactuatorfrc",
}
"""Sensors that MuJoCo calls otherwise than files do."""


def kind_of_sensor(model: Any, i: int) -> str:
    """Such as `"gyro"`: its element in a file."""
    kind = word_of("Sensor", model.sensor_type[i])
    return _ELEMENTS.get(kind, kind)


@final
class _Reading:
    """What has been read of a model's sensors so far."""

    def __init__(
        self,
        at: Reference,
        tree: TreeSystem,
        lengths: Mapping[int, Lengths | Path],
        geoms: Mapping[str, tuple[int, int]],
        closures: Sequence[Closure],
    ):
        self.at, self.tree, self.lengths, self.geoms = at, tree, lengths, geoms
        self.closures = closures
        self.bodies = {GROUND: 0} | {body.name: i + 1 for i, body in enumerate(tree.bodies)}
        self.merged: dict[str, set[int]] = {}
        for i, name in enumerate(at.carriers):
            self.merged.setdefault(name, set()).add(i)
        self.frames: dict[tuple[str, int], int] = {}
        self.placed: list[tuple[int, np.ndarray, np.ndarray, np.ndarray]] = []
        self.pieces: dict[int, int] = {}  # by the file's bodies
        self.pairs: dict[tuple[int, int], int] = {}  # by the file's geoms
        self.shapes: list[tuple[AbstractShape, AbstractShape]] = []
        self.shape = functools.cache(lambda geom: shape_of(at, geom))
        self.drives = {k for load in tree.loads if isinstance(load, Actuators) for k in load.which}

    # --- Frames

    def frame(self, kind: str, number: int) -> int:
        """The place of the frame of an object, which is put there."""
        key = kind, number
        if key not in self.frames:
            self.frames[key] = len(self.placed)
            self.placed.append(self._frame(kind, number))
        return self.frames[key]

    def _frame(self, kind: str, i: int) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
        model, data = self.at.model, self.at.data
        one = np.array([1.0, 0.0, 0.0, 0.0])
        if kind in ("body", "xbody"):
            body, position, turn = i, np.zeros(3), one
            if kind == "body":
                position, turn = model.body_ipos[i], model.body_iquat[i]
        elif kind in ("geom", "site", "camera"):
            if kind == "camera" and model.cam_mode[i] != mujoco().mjtCamLight.mjCAMLIGHT_FIXED:
                raise RefusedError("its camera follows something")
            word = "cam" if kind == "camera" else kind
            body, position, turn = (
                x[i] for x in (getattr(model, f"{word}_{y}") for y in ("bodyid", "pos", "quat"))
            )
        else:
            raise RefusedError(f"it is on a {kind}")
        place, quaternion, axes = np.zeros(3), np.zeros(4), np.zeros(9)
        mujoco().mju_rotVecQuat(place, np.array(position), data.xquat[body])
        mujoco().mju_mulQuat(quaternion, data.xquat[body], np.array(turn))
        mujoco().mju_quat2Mat(axes, quaternion)
        carrier = self.bodies[self.at.carriers[body]]
        place = remove_rounding(data.xpos[body] + place)
        return carrier, place, remove_rounding(axes.reshape(3, 3)), quaternion

    # --- Subtrees: whole bodies of the tree, and parts of those that are merged

    def subtree(self, body: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The pieces of all that a body carries, and the bodies of the file."""
        model, own = self.at.model, {body}
        for i in range(body + 1, model.nbody):
            own |= {i} if int(model.body_parentid[i]) in own else set()
        pieces, bodies = set[int](), sorted(own - {0})
        for i in bodies:
            name = self.at.carriers[i]
            if name != GROUND and self.merged[name] <= own:
                pieces.add(self.bodies[name] - 1)
            elif model.body_mass[i] > 0:
                pieces.add(self.pieces.setdefault(i, len(self.tree.bodies) + len(self.pieces)))
        return tuple(sorted(pieces)), tuple(bodies)

    # --- Of each kind, what it is on

    def of_frame(self, i: int, kind: str) -> dict[str, Any]:
        model = self.at.model
        frames = {"frame": self.frame(word_of("Obj", model.sensor_objtype[i]), int(model.sensor_objid[i]))}
        if model.sensor_refid[i] >= 0:
            frames["reference"] = self.frame(
                word_of("Obj", model.sensor_reftype[i]), int(model.sensor_refid[i])
            )
        return frames

    def of_joint(self, i: int, kind: str) -> dict[str, Any]:
        model, joint = self.at.model, int(self.at.model.sensor_objid[i])
        place = model.jnt_qposadr if kind in ("jointpos", "ballquat") else model.jnt_dofadr
        carries = kind == "jointactuatorfrc" and is_given(model, "jnt_actgravcomp", joint)
        if carries and any(isinstance(load, GravityCompensation) for load in self.tree.loads):
            raise RefusedError("its motor carries the weight that is compensated as well")
        return {"number": int(place[joint]), "of": self.at.names.joints[joint]}

    def of_tendon(self, i: int, kind: str) -> dict[str, Any]:
        model, tendon = self.at.model, int(self.at.model.sensor_objid[i])
        if kind != "tendonactuatorfrc":
            if tendon not in self.lengths:
                raise RefusedError("its tendon is not used")
            return {"number": tendon}
        on_tendon = np.array(model.actuator_trntype) == mujoco().mjtTrn.mjTRN_TENDON
        own = np.flatnonzero(on_tendon & (np.array(model.actuator_trnid)[:, 0] == tendon)).tolist()
        if not self.drives.issuperset(own):
            raise RefusedError("an actuator of its tendon is not used")
        return {"members": tuple(own)}

    def of_actuator(self, i: int, kind: str) -> dict[str, Any]:
        model, number = self.at.model, int(self.at.model.sensor_objid[i])
        if number not in self.drives:
            raise RefusedError("its actuator is not used")
        if model.sensor_dim[i] != 1:
            raise RefusedError("its actuator has several outputs")
        works_on, (target, other) = int(model.actuator_trntype[number]), model.actuator_trnid[number]
        on_joint = works_on in (mujoco().mjtTrn.mjTRN_JOINT, mujoco().mjtTrn.mjTRN_JOINTINPARENT)
        gear = np.asarray(model.actuator_gear[number])
        turns = on_joint and int(target) in joints_by_kind(self.at)["ball"]
        turns |= works_on == mujoco().mjtTrn.mjTRN_SITE and other >= 0 and bool(gear[3:].any())
        if kind == "actuatorpos" and turns:
            raise RefusedError("its actuator turns a ball or a site, whose angle is not built")
        return {"number": number}

    def of_limit(self, i: int, kind: str) -> dict[str, Any]:
        model, number = self.at.model, int(self.at.model.sensor_objid[i])
        word = kind[: -len("limitpos")]  # vel and frc are as long
        has = bool((model.jnt_limited if word == "joint" else model.tendon_limited)[number])
        has &= not self.at.is_disabled("LIMIT")
        low, high = (model.jnt_range if word == "joint" else model.tendon_range)[number]
        low, high = (float(low), float(high)) if has else (-np.inf, np.inf)
        if word == "tendon":
            if number not in self.lengths:
                raise RefusedError("its tendon is not used")
            margin = float(model.tendon_margin[number])
            own: dict[str, Any] = {"number": number, "of": self.at.names.tendons[number]}
            return own | {"numbers": (low, high, margin, 0.0)}
        q, ball = int(model.jnt_qposadr[number]), number in joints_by_kind(self.at)["ball"]
        own = {"number": q, "reference": int(model.jnt_dofadr[number]), "of": self.at.names.joints[number]}
        if ball:
            low, high = -np.inf, max(low, high)
        start = 0.0 if ball else float(model.qpos0[q])
        numbers = (low, high, float(model.jnt_margin[number]), start)
        return own | {"shape": "ball" if ball else "", "numbers": numbers}

    def of_subtree(self, i: int, kind: str) -> dict[str, Any]:
        body = int(self.at.model.sensor_objid[i])
        members, _ = self.subtree(body)
        if self.at.model.body_subtreemass[body] < LEAST:
            raise RefusedError("its bodies have no mass")
        return {"members": members}

    def of_transmitted(self, i: int, kind: str) -> dict[str, Any]:
        site = int(self.at.model.sensor_objid[i])
        members, bodies = self.subtree(int(self.at.model.site_bodyid[site]))
        return {"frame": self.frame("site", site), "members": members, "bodies": bodies}

    def _zone(self, site: int) -> dict[str, Any]:
        shape = word_of("Geom", self.at.model.site_type[site])
        if shape not in SOLID:
            raise RefusedError(f"its site is a {shape}")
        return {"shape": shape, "numbers": tuple(map(float, self.at.model.site_size[site]))}

    def of_touch(self, i: int, kind: str) -> dict[str, Any]:
        site = int(self.at.model.sensor_objid[i])
        body = int(self.at.model.site_bodyid[site])
        return {"frame": self.frame("site", site), "bodies": (body,)} | self._zone(site)

    def of_contact(self, i: int, kind: str) -> dict[str, Any]:
        model, (spec, how, _) = self.at.model, self.at.model.sensor_intprm[i].tolist()
        first, second = (
            (word_of("Obj", getattr(model, f"sensor_{x}type")[i]), int(getattr(model, f"sensor_{x}id")[i]))
            for x in ("obj", "ref")
        )
        zone = {"frame": self.frame(*first)} | self._zone(first[1]) if first[0] == "site" else {}
        parts = tuple(x for k, x in enumerate(PARTS) if spec >> k & 1)
        matches = match_contacts(self.at, self.bodies, self.geoms, first, second)
        return zone | {"parts": parts, "reduce": REDUCTIONS[how], "matches": matches}

    def of_inside(self, i: int, kind: str) -> dict[str, Any]:
        model = self.at.model
        body = int(model.sensor_objid[i])
        if word_of("Obj", model.sensor_objtype[i]) == "body" and body and model.body_mass[body] < LEAST:
            raise RefusedError("its body has no mass")
        return self.of_frame(i, kind) | self._zone(int(model.sensor_refid[i]))

    def of_camera(self, i: int, kind: str) -> dict[str, Any]:
        model, camera = self.at.model, int(self.at.model.sensor_refid[i])
        size, sensor = model.cam_resolution[camera].astype(np.float32), model.cam_sensorsize[camera]
        focal = np.repeat(0.5 / np.tan(np.deg2rad(model.cam_fovy[camera]) / 2) * size[1], 2)
        if sensor.all():
            focal = model.cam_intrinsic[camera][:2] / sensor * size  # in float32, as MuJoCo has them
        frames = {"frame": self.frame("site", int(model.sensor_objid[i]))}
        frames["reference"] = self.frame("camera", camera)
        return frames | {"numbers": tuple(map(float, (*focal, *(0.5 * size))))}

    def of_rays(self, i: int, kind: str) -> dict[str, Any]:
        model, site = self.at.model, int(self.at.model.sensor_objid[i])
        if word_of("Obj", model.sensor_objtype[i]) != "site" or model.sensor_dim[i] != 1:
            raise RefusedError("of rangefinders the distance from a site is built, no pictures and no places")
        return {"frame": self.frame("site", site), "bodies": (int(model.site_bodyid[site]),)}

    def of_geoms(self, i: int, kind: str) -> dict[str, Any]:
        model, members, turned = self.at.model, list[int](), list[bool]()
        first, second = (
            self._geoms(
                word_of("Obj", getattr(model, f"sensor_{x}type")[i]), int(getattr(model, f"sensor_{x}id")[i])
            )
            for x in ("obj", "ref")
        )
        for x, y in itertools.product(first, second):
            own: dict[int, Any] = {k: self.shape(k) for k in (x, y)}
            if not is_offered(*own.values()):
                kinds = " and ".join(kind_of_geom(self.at, k) for k in own)
                raise RefusedError(f"distances of {kinds} are not offered")
            a, b = sorted(own, key=lambda k: (own[k].order, k))
            if (a, b) not in self.pairs:
                self.pairs[a, b] = len(self.shapes)
                self.shapes.append((own[a], own[b]))
            members.append(self.pairs[a, b])
            turned.append(a != x)
        if not members:
            raise RefusedError("a body of it has no geoms")
        return {"members": tuple(members), "turned": tuple(turned)}

    def _geoms(self, kind: str, i: int) -> list[int]:
        if kind == "geom":
            return [i]
        first = int(self.at.model.body_geomadr[i])
        return list(range(first, first + int(self.at.model.body_geomnum[i])))

    def of_nothing(self, i: int, kind: str) -> dict[str, Any]:
        return {}

    # --- What comes of it

    def sensor(self, i: int, name: str) -> Sensor:
        """A sensor; raises `RefusedError` for one that is not built."""
        model, kind = self.at.model, kind_of_sensor(self.at.model, i)
        if kind not in READ:
            raise RefusedError(_WHY.get(kind, "not known"))
        data = word_of("DataType", model.sensor_datatype[i])
        noise, cutoff = float(model.sensor_noise[i]), float(model.sensor_cutoff[i])
        own = _ON[kind](self, i, kind)
        return Sensor(name, kind, int(model.sensor_dim[i]), cutoff, noise, data, **own)

    def table(self, sensors: list[Sensor], refused: list[tuple[str, str, str]]) -> SensorTable:
        model, data = self.at.model, self.at.data
        moved, masses = list(self.pieces), np.array(model.body_mass)
        axes = data.ximat[moved].reshape(-1, 3, 3)
        inertias = np.einsum("pab,pb,pcb->pac", axes, model.body_inertia[moved], axes)
        still = [i for i, name in enumerate(self.at.carriers) if name == GROUND and i]
        gravity = np.zeros(3) if self.at.is_disabled("GRAVITY") else np.array(model.opt.gravity)
        carriers, places, turns, quaternions = zip(*self.placed, strict=True) if self.placed else [()] * 4
        sees = any(x.kind == "rangefinder" for x in sensors)
        of_body = lambda i: int(model.geom_bodyid[i])
        ends = {name: (of_body(i), of_body(j)) for name, (i, j) in self.geoms.items()}
        own = {x.kind for x in sensors}
        tendons = {x.number for x in sensors if x.kind.startswith("tendon") and x.number >= 0}
        return SensorTable(
            sensors=tuple(sensors),
            refused=tuple(refused),
            carriers=tuple(carriers),
            places=as_jax(np.array(places, float).reshape(-1, 3)),
            axes=as_jax(np.array(turns, float).reshape(-1, 3, 3)),
            quaternions=as_jax(np.array(quaternions, float).reshape(-1, 4)),
            pieces=tuple(self.bodies[self.at.carriers[i]] for i in moved),
            masses=as_jax(masses[moved]),
            centres=as_jax(data.xipos[moved].reshape(-1, 3)),
            inertias=as_jax(inertias),
            ends=tuple((ends | self._loop_ends()).items()) if own.intersection(PRESSED) else (),
            lengths={i: self.lengths[i] for i in sorted(tendons)},
            gravity=as_jax(gravity),
            magnetic=as_jax(np.array(model.opt.magnetic)),
            still=as_jax(-np.sum(masses[still] * (data.xipos[still] @ gravity))),
            scene=self._scene() if sees else Scene((), ()),
            pairs=tuple(self.shapes),
        )

    def _loop_ends(self) -> dict[str, tuple[int, int]]:
        """The bodies of connects, welds and joints that close loops, in the order of the loops."""
        model, ends_of_loops, names = self.at.model, {}, {joint.name for joint in self.tree.loops}
        taken, joined = set[str](), {int(mujoco().mjtEq.mjEQ_CONNECT), int(mujoco().mjtEq.mjEQ_WELD)}
        for i in range(model.neq):
            name = equality_name(self.at, i, taken)
            if name in names and int(model.eq_type[i]) in joined:
                ends = int(model.eq_obj1id[i]), int(model.eq_obj2id[i])
                by_sites = model.eq_objtype[i] == mujoco().mjtObj.mjOBJ_SITE
                ends_of_loops[name] = tuple(int(model.site_bodyid[x]) for x in ends) if by_sites else ends
        number = lambda site: int(model.site_bodyid[self.at.names.sites.index(site)])
        return ends_of_loops | {
            x.name: (number(x.sites[0]), number(x.sites[1])) for x in self.closures if x.name in names
        }

    def _list_seen_geoms(self) -> list[int]:
        model = self.at.model
        alpha = lambda i: (
            model.geom_rgba[i] if model.geom_matid[i] < 0 else model.mat_rgba[int(model.geom_matid[i])]
        )[3]
        return [i for i in range(model.ngeom) if alpha(i) > 0]

    def list_unseen_kinds(self) -> tuple[str, ...]:
        """Geoms that would be in the way of rays, and are not known to them."""
        known = (*SOLID, "plane", "mesh")
        return tuple(kind for i in self._list_seen_geoms() if (kind := kind_of_geom(self.at, i)) not in known)

    def _scene(self) -> Scene:
        model, by_kind, meshes = self.at.model, dict[str, list[int]](), dict[int, list[np.ndarray]]()
        for i in self._list_seen_geoms():
            kind, body = kind_of_geom(self.at, i), int(model.geom_bodyid[i])
            if kind in (*SOLID, "plane"):
                by_kind.setdefault(kind, []).append(i)
            elif kind == "mesh" and (mesh := int(model.geom_dataid[i])) >= 0:
                first, count = int(model.mesh_faceadr[mesh]), int(model.mesh_facenum[mesh])
                vertices = model.mesh_vert[int(model.mesh_vertadr[mesh]) :].astype(float)
                corners = vertices[model.mesh_face[first : first + count]]
                axes = self.at.data.geom_xmat[i].reshape(3, 3)
                meshes.setdefault(body, []).append(self.at.data.geom_xpos[i] + corners @ axes.T)
        carrier = lambda body: self.bodies[self.at.carriers[body]]
        solids = [
            Solids(
                kind,
                tuple(carrier(int(model.geom_bodyid[i])) for i in own),
                tuple(int(model.geom_bodyid[i]) for i in own),
                jnp.asarray(self.at.data.geom_xpos[own]),
                jnp.asarray(self.at.data.geom_xmat[own].reshape(-1, 3, 3)),
                jnp.asarray(model.geom_size[own]),
            )
            for kind, own in by_kind.items()
        ]
        of = [Mesh(carrier(body), body, jnp.asarray(np.concatenate(x))) for body, x in meshes.items()]
        return Scene(tuple(solids), tuple(of))


_ON = {
    **{kind: _Reading.of_frame for kind in READ if kind.startswith("frame")},
    **dict.fromkeys(("gyro", "accelerometer", "velocimeter", "magnetometer"), _Reading.of_frame),
    **dict.fromkeys(
        ("jointpos", "jointvel", "ballquat", "ballangvel", "jointactuatorfrc"), _Reading.of_joint
    ),
    **dict.fromkeys(("tendonpos", "tendonvel", "tendonactuatorfrc"), _Reading.of_tendon),
    **dict.fromkeys(("actuatorpos", "actuatorvel", "actuatorfrc"), _Reading.of_actuator),
    **{kind: _Reading.of_limit for kind in READ if "limit" in kind},
    **dict.fromkeys(DISTANT, _Reading.of_geoms),
    **{kind: _Reading.of_subtree for kind in READ if kind.startswith("subtree")},
    **dict.fromkeys(("clock", "e_potential", "e_kinetic"), _Reading.of_nothing),
    **dict.fromkeys(("force", "torque"), _Reading.of_transmitted),
    "touch": _Reading.of_touch,
    "contact": _Reading.of_contact,
    "insidesite": _Reading.of_inside,
    "camprojection": _Reading.of_camera,
    "rangefinder": _Reading.of_rays,
}
"""What the sensors of each kind are on."""


def sensors(
    at: Reference,
    tree: TreeSystem,
    lengths: Mapping[int, Lengths | Path],
    geoms: Mapping[str, tuple[int, int]],
    closures: Sequence[Closure] = (),
) -> tuple[SensorTable, tuple[Feature, ...]]:
    """The sensors of a model, and lines for the report.

    `geoms` are those of each contact of the tree, by its rows' names, the first shape's first.
    """
    model, reading, rows, built, refused = (
        at.model,
        _Reading(at, tree, lengths, geoms, closures),
        list[Row](),
        [],
        [],
    )
    for i, name in enumerate(at.names.sensors):
        feature = f"sensor {kind_of_sensor(model, i)}"
        try:
            built.append(reading.sensor(i, name))
        except RefusedError as why:
            refused.append((name, feature, str(why)))
            rows.append((feature, name, "ignored", str(why)))
            continue
        rows += [(feature, name, *x) for x in _status(built[-1], reading)]
        rows += _notes(at, i, name)
    return reading.table(built, refused), tuple(dataclasses.replace(x, moves=False) for x in features(rows))


def _status(sensor: Sensor, reading: _Reading) -> list[tuple[str, str]]:
    bodies = reading.at.model.geom_bodyid
    touched = {int(bodies[i]) for pair in reading.geoms.values() for i in pair}
    if sensor.kind == "touch" and touched.isdisjoint(sensor.bodies):
        return [("ignored", "it reads zero: the robot was loaded without contacts of its body")]
    if sensor.kind == "contact" and not sensor.matches:
        return [("ignored", "it finds none: the robot was loaded without contacts that it would find")]
    stops = [x.name for x in reading.tree.mechanism.contacts if isinstance(x, Limit)]
    if sensor.kind in STOPPED and sensor.of not in stops:
        return [("ignored", "it reads zero: the robot was loaded without this stop")]
    if sensor.kind == "rangefinder" and (hidden := reading.list_unseen_kinds()):
        return [("approximated", f"it does not see {', '.join(dict.fromkeys(hidden))}")]
    return [("used", "")]


def _notes(at: Reference, i: int, name: str) -> list[Row]:
    """What of a sensor is not as it stands."""
    model, rows = at.model, list[Row]()
    if model.sensor_noise[i]:
        rows.append(("sensor noise", name, "ignored", "added where robot.sensors is given a key"))
    if any(is_given(model, f"sensor_{x}", i) for x in ("delay", "interval", "history")):
        rows.append(("sensor delay, interval or history", name, "ignored", "it is read at once"))
    return rows
