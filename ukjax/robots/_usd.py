"""USD with physics: rigid bodies, joints of all kinds and loops, drives, collision shapes; read by `usd-core`.

Schemas: https://openusd.org/release/api/usd_physics_page_front.html. Its own parser resolves units of joints' frames,
inheritance and defaults.
"""

# Its modules are compiled, and type checkers see none of their names.
# pyright: reportAttributeAccessIssue=false

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from .._misc._errors import InputError, needing
from ._contact_selection import ContactSelection
from ._graph import (
    ENDLESS,
    WORLD,
    Axis,
    Description,
    Joint,
    Link,
    Shape,
    add_shape,
    finite_limits,
    place_of,
    specify,
)
from ._reference import mujoco
from ._report import Row, features
from ._visuals import Look

USD_ENDINGS = (".usd", ".usda", ".usdc", ".usdz")
_DEGREE = np.pi / 180.0


def read_usd(path: Path, wanted: ContactSelection) -> Description:
    """A USD file."""
    with needing("loading a robot from USD", "usd"):
        from pxr import Tf, Usd  # pyright: ignore[reportMissingImports]
    try:
        stage = Usd.Stage.Open(str(path))
    except Tf.ErrorException as error:
        words = re.search(r":(\d+):\d+: (.*?) in <", str(error))
        why = f"line {words[1]}: {words[2]}" if words else " ".join(str(error).split())
        raise InputError(f"{path} is no USD: {why}.") from error
    return _Stage(stage, path, wanted).description()


def _names(paths: list[Any]) -> dict[Any, str]:
    """The last words of paths where these are unique, else all of them."""
    last = [path.name for path in paths]
    return {path: path.name if last.count(path.name) == 1 else str(path).lstrip("/") for path in paths}


def _rotation(quaternion: Any) -> Rotation:
    return Rotation.from_quat([*quaternion.imaginary, quaternion.real])


def _place(position: Any, quaternion: Any, metre: float) -> np.ndarray:
    return place_of(metre * np.array(position, float), _rotation(quaternion))


class _Stage:
    """A stage, and what of it has been read.

    - `metre`, `kilogram`: of a unit of the file.
    """

    def __init__(self, stage: Any, path: Path, wanted: ContactSelection):
        from pxr import UsdGeom, UsdPhysics  # pyright: ignore[reportMissingImports]

        self.stage, self.path, self.wanted = stage, path, wanted
        self.metre = float(UsdGeom.GetStageMetersPerUnit(stage))
        self.kilogram = float(UsdPhysics.GetStageKilogramsPerUnit(stage))
        load = (
            getattr(UsdPhysics, "UsdPhysicsLoadStageFromPrimRange", None)
            or UsdPhysics.LoadUsdPhysicsFromRange
        )
        self.by_kind: dict[str, list[Any]] = {}
        for kind, (paths, given) in load(stage, ["/"]).items():
            self.by_kind[str(kind).rpartition(".")[2]] = [
                x for _, x in zip(paths, given, strict=True) if x.isValid
            ]
        bodies = self.of("RigidBody")
        self.links = _names([x.primPath for x in bodies if x.rigidBodyEnabled])
        self.rows = list[Row]()
        self.joints = self._list_joints()

    def of(self, *kinds: str) -> list[Any]:
        """What the parser has found of some kinds."""
        return [x for kind in kinds for x in self.by_kind.get(kind, [])]

    def link(self, path: Any) -> str:
        """The link of a body's path; that of the world where it has none, or does not move."""
        return self.links.get(path, WORLD)

    def description(self) -> Description:
        """All of it."""
        shapes = self._shapes()
        links = [
            self._link(x, shapes.get(self.link(x.primPath), []))
            for x in self.of("RigidBody")
            if x.rigidBodyEnabled
        ]
        if not links:
            raise InputError(f"{self.path} has no rigid body: no prim with PhysicsRigidBodyAPI.")
        still = Link(WORLD, np.eye(4), 0.0, np.eye(4), np.zeros((3, 3)), tuple(shapes.get(WORLD, ())))
        fixed = [
            self.links[x.primPath] for x in self.of("RigidBody") if x.rigidBodyEnabled and x.kinematicBody
        ]
        self.rows += [("kinematic body", name, "approximated", "it stays where it starts") for name in fixed]
        joints = [x for x in map(self._joint, self.joints) if x is not None]
        joints = [x for x in joints if {x.parent, x.child} - {WORLD, *fixed}]
        spec, closures, rows = specify(self.path.stem, [still, *links], joints, (), fixed)
        self._add_distances(spec)
        self._drive(spec)
        self._exclude(spec)
        gravity = self.of("Scene")
        if gravity:
            spec.option.gravity = (
                self.metre * gravity[0].gravityMagnitude * np.array(gravity[0].gravityDirection, float)
            )
        looks = tuple(self._looks())
        return Description(
            spec, features([*self.rows, *rows, *self._list_other_schemas()]), looks, tuple(closures)
        )

    # --- bodies

    def _link(self, body: Any, shapes: list[Shape]) -> Link:
        from pxr import UsdPhysics  # pyright: ignore[reportMissingImports]

        name, prim = self.links[body.primPath], self.stage.GetPrimAtPath(body.primPath)
        api = UsdPhysics.MassAPI(prim) if prim.HasAPI(UsdPhysics.MassAPI) else None
        get = lambda attribute: None if api is None else getattr(api, attribute)().Get()
        mass = self.kilogram * float(get("GetMassAttr") or 0.0)
        density = self.kilogram / self.metre**3 * float(get("GetDensityAttr") or 0.0)
        centre, moments = (
            get("GetCenterOfMassAttr"),
            np.array(get("GetDiagonalInertiaAttr") or np.zeros(3), float),
        )
        unit = self.kilogram * self.metre**2
        known = centre is not None and np.isfinite(centre).all()
        if density:
            shapes = [x._replace(density=density) for x in shapes]
        if mass and moments.any():
            axes = get("GetPrincipalAxesAttr")
            turn = Rotation.identity() if axes is None or axes.GetLength() == 0 else _rotation(axes)
            frame = place_of(self.metre * np.array(centre, float) if known else np.zeros(3), turn)
            inertia = unit * np.diag(moments)
        else:
            of_shapes = _weigh(shapes)
            if of_shapes is None:
                why = (
                    "it has neither mass nor shapes: 1 kg and a ball of 0.1 m"
                    if not mass
                    else "a ball of 0.1 m"
                )
                self.rows.append(("inertia of a body", name, "approximated", why))
                mass = mass or 1.0
                frame, inertia = np.eye(4), 0.4 * mass * 0.01 * np.eye(3)
            else:
                whole, frame, inertia = of_shapes
                mass = mass or whole
                inertia = inertia * mass / whole if not moments.any() else unit * np.diag(moments)
            if known:
                frame = frame.copy()
                frame[:3, 3] = self.metre * np.array(centre, float)
        for what, velocity in (("velocity", body.linearVelocity), ("angular velocity", body.angularVelocity)):
            if np.array(velocity).any():
                self.rows.append((f"{what} at the start", name, "ignored", "robots start at rest"))
        placed = _place(body.position, body.rotation, self.metre)
        return Link(name, placed, mass, frame, inertia, tuple(shapes))

    # --- shapes

    def _shapes(self) -> dict[str, list[Shape]]:
        from pxr import UsdPhysics  # pyright: ignore[reportMissingImports]

        kinds = (
            "Cube",
            "Sphere",
            "Capsule",
            "Capsule1",
            "Cylinder",
            "Cylinder1",
            "Cone",
            "Mesh",
            "Plane",
            "Custom",
            "SpherePoints",
        )
        given = [x for x in self.of(*(f"{kind}Shape" for kind in kinds)) if x.collisionEnabled]
        materials = {x.primPath: x for x in self.of("RigidBodyMaterial")}
        names, by_link = _names([x.primPath for x in given]), dict[str, list[Shape]]()
        for x in given:
            shape, name = self._shape(x), names[x.primPath]
            if shape is None:
                self.rows.append(
                    (
                        f"collision of a {x.type.name.removesuffix('Shape').lower()}",
                        name,
                        "ignored",
                        "such a shape is not read",
                    )
                )
                continue
            for material in filter(None, (materials.get(m) for m in x.materials)):
                density = material.density * self.kilogram / self.metre**3
                shape = shape._replace(friction=material.dynamicFriction, density=density or shape.density)
                if material.staticFriction != material.dynamicFriction:
                    self.rows.append(
                        ("static friction", name, "approximated", "the dynamic one counts for both")
                    )
                if material.restitution > 0:
                    self.rows.append(
                        ("restitution of a surface", name, "ignored", "load(..., restitution=...) sets it")
                    )
            prim = self.stage.GetPrimAtPath(x.primPath)
            if prim.HasAPI(UsdPhysics.MassAPI):
                api = UsdPhysics.MassAPI(prim)
                density = float(api.GetDensityAttr().Get() or 0.0) * self.kilogram / self.metre**3
                mass = float(api.GetMassAttr().Get() or 0.0) * self.kilogram
                if mass:
                    whole = _weigh([shape._replace(density=1.0)])
                    density = mass / whole[0] if whole else 0.0
                shape = shape._replace(density=density or shape.density)
            by_link.setdefault(self.link(x.rigidBody), []).append(shape._replace(name=name))
        return by_link

    def _shape(self, x: Any) -> Shape | None:
        kind, m = x.type.name.removesuffix("Shape"), self.metre
        place = _place(x.localPos, x.localRot, m)
        along = place @ _turn_z_to(x.axis.name) if hasattr(x, "axis") else place
        if kind == "Cube":
            return Shape("", "box", m * np.array(x.halfExtents, float), place)
        if kind == "Sphere":
            return Shape("", "sphere", [m * x.radius], place)
        if kind in ("Capsule", "Cylinder"):
            return Shape("", kind.lower(), [m * x.radius, m * x.halfHeight], along)
        if kind == "Plane":
            return Shape("", "plane", [0.0, 0.0, 1.0], along)
        if kind == "Mesh":
            mesh = self._mesh(
                x.primPath,
                m
                * np.array(x.meshScale.GetReal() if hasattr(x.meshScale, "GetReal") else x.localScale, float),
            )
            if mesh is not None and x.approximation not in ("convexHull", "boundingCube"):
                self.rows.append(("mesh that touches", x.primPath.name, "approximated", "by its convex hull"))
            return None if mesh is None else Shape("", "mesh", [], place, mesh)
        return None

    def _mesh(self, path: Any, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        from pxr import UsdGeom  # pyright: ignore[reportMissingImports]

        mesh = UsdGeom.Mesh(self.stage.GetPrimAtPath(path))
        points, counts = mesh.GetPointsAttr().Get(), mesh.GetFaceVertexCountsAttr().Get()
        if not points or not counts:
            return None
        corners, start, faces = np.array(mesh.GetFaceVertexIndicesAttr().Get()), 0, list[Any]()
        for count in counts:
            own = corners[start : start + count]
            faces += [(own[0], own[i], own[i + 1]) for i in range(1, count - 1)]
            start += count
        return np.array(points, float) * scale, np.array(faces, np.int32)

    def _looks(self) -> Iterator[Look]:
        """The shapes of links that are for pictures."""
        from pxr import Usd, UsdGeom, UsdPhysics  # pyright: ignore[reportMissingImports]

        cache = UsdGeom.XformCache()
        for path, link in self.links.items():
            body = self.stage.GetPrimAtPath(path)
            below = iter(Usd.PrimRange(body, Usd.TraverseInstanceProxies()))
            for prim in below:
                if prim != body and prim.GetPath() in self.links:
                    below.PruneChildren()
                    continue
                if not prim.IsA(UsdGeom.Gprim) or prim.HasAPI(UsdPhysics.CollisionAPI):
                    continue
                if (
                    UsdGeom.Imageable(prim).ComputePurpose() == "guide"
                    or UsdGeom.Imageable(prim).ComputeVisibility() == "invisible"
                ):
                    continue
                relative = cache.ComputeRelativeTransform(prim, body)[0]
                turn = np.array(relative)[:3, :3].T
                scale = np.linalg.norm(turn, axis=0)
                shape = (
                    self._look(prim, self.metre * scale) if scale.all() and np.linalg.det(turn) > 0 else None
                )
                if shape is None:
                    self.rows.append(("visual geometry", prim.GetName(), "off", "such a shape is not shown"))
                    continue
                kind, axis = shape
                rgb = UsdGeom.Gprim(prim).GetDisplayColorAttr().Get()
                colour = np.append(np.clip(np.array(rgb[0], float), 0, 1), 1.0) if rgb else None
                R = turn / scale @ _turn_z_to(axis)[:3, :3]
                yield Look(link, kind, self.metre * np.array(relative.ExtractTranslation(), float), R, colour)

    def _look(self, prim: Any, scale: np.ndarray) -> tuple[dict[str, Any], str] | None:
        from pxr import UsdGeom  # pyright: ignore[reportMissingImports]

        kind, get = str(prim.GetTypeName()), lambda name: prim.GetAttribute(name).Get()
        if kind == "Mesh":
            mesh = self._mesh(prim.GetPath(), scale)
            return None if mesh is None else ({"kind": "mesh", "vertices": mesh[0], "faces": mesh[1]}, "Z")
        if kind == "Cube":
            return {"kind": "box", "size": float(get("size")) * scale}, "Z"
        if kind == "Sphere":
            return {"kind": "ellipsoid", "size": float(get("radius")) * scale}, "Z"
        if kind in ("Capsule", "Cylinder"):
            axis = str(UsdGeom.Capsule(prim).GetAxisAttr().Get() or "Z")
            i = "XYZ".index(axis)
            size = [float(get("radius")) * scale[i - 1], float(get("height")) * scale[i]]
            return {"kind": kind.lower(), "size": size}, axis
        return None

    # --- joints

    def _list_joints(self) -> list[Any]:
        kinds = ("Fixed", "Revolute", "Prismatic", "Spherical", "Distance", "D6", "Custom")
        given = self.of(*(f"{kind}Joint" for kind in kinds))
        self.names = _names([x.primPath for x in given])
        off = [x for x in given if not x.jointEnabled]
        self.rows += [("joint", self.names[x.primPath], "off", "disabled in the file") for x in off]
        # Those of the tree first, so that joints which are excluded from it close the loops.
        return sorted((x for x in given if x.jointEnabled), key=lambda x: x.excludeFromArticulation)

    def _joint(self, x: Any) -> Joint | None:
        name, m, kind = self.names[x.primPath], self.metre, x.type.name.removesuffix("Joint")
        if kind == "Custom":
            self.rows.append(("custom joint", name, "ignored", "such a joint is not read"))
        if kind in ("Custom", "Distance"):  # the latter are no joints of the tree
            return None
        first, second = (
            _place(getattr(x, f"localPose{i}Position"), getattr(x, f"localPose{i}Orientation"), m)
            for i in (0, 1)
        )
        kind, axes = self._freedoms(x, name, kind)
        if kind == "free":
            self.rows.append(("joint without rows", name, "used", "its bodies move freely"))
            return None
        if np.isfinite([x.breakForce, x.breakTorque]).any() and min(x.breakForce, x.breakTorque) < ENDLESS:
            self.rows.append(("joint that breaks", name, "ignored", "joints do not break"))
        ends = self.link(x.body0), self.link(x.body1)
        return Joint(name, kind, *ends, (first, second), axes, loop=bool(x.excludeFromArticulation))

    def _freedoms(self, x: Any, name: str, kind: str) -> tuple[str, tuple[Axis, ...]]:
        armature = float(
            self.stage.GetPrimAtPath(x.primPath).GetAttribute("physxJoint:armature").Get() or 0.0
        )
        if kind == "Fixed":
            return "fixed", ()
        if kind == "Spherical":
            if x.limit.enabled and min(x.limit.angle0, x.limit.angle1) >= 0:
                self.rows.append(("cone of a spherical joint", name, "ignored", "it has no limits"))
            return "ball", ()
        if kind in ("Revolute", "Prismatic"):
            slides = kind == "Prismatic"
            unit = self.metre if slides else _DEGREE
            limits = (unit * x.limit.lower, unit * x.limit.upper) if x.limit.enabled else (-np.inf, np.inf)
            mass = self.kilogram * (1.0 if slides else self.metre**2)
            return kind.lower(), (
                Axis(_UNITS[x.axis.name], slides, finite_limits(*limits), armature=armature * mass),
            )
        limits = {dof.name: limit for dof, limit in ((p.first, p.second) for p in x.jointLimits)}
        axes = list[Axis]()
        for dof in ("TransX", "TransY", "TransZ", "RotX", "RotY", "RotZ"):
            limit = limits.get(dof)
            if limit is not None and limit.enabled and limit.lower > limit.upper:
                continue  # locked
            slides = dof.startswith("Trans")
            unit = self.metre if slides else _DEGREE
            range_ = (
                (unit * limit.lower, unit * limit.upper)
                if limit is not None and limit.enabled
                else (-np.inf, np.inf)
            )
            axes.append(
                Axis(_UNITS[dof[-1]], slides, finite_limits(*range_), armature=armature, name=f"{name} {dof}")
            )
        turning = [axis for axis in axes if not axis.slides]
        bare = not any(np.isfinite(axis.limits).any() for axis in turning) and not list(x.jointDrives)
        if len(axes) == 6 and bare:
            return "free", ()
        if len(axes) == len(turning) == 3 and bare:
            return "ball", ()
        if len(axes) == 1:
            return ("revolute" if turning else "prismatic"), (axes[0]._replace(name=""),)
        if len(axes) == 2 and len(turning) == 1 and (axes[0].direction == axes[1].direction).all():
            return "cylindrical", tuple(axes)
        if len(axes) == len(turning) == 2:
            return "universal", tuple(axes)
        return ("planar" if axes else "fixed"), tuple(axes)

    def _add_distances(self, spec: Any) -> None:
        """Distance joints, as tendons between two points: of one length, or with limits."""
        for x in (x for x in self.of("DistanceJoint") if x.jointEnabled):
            name, tendon, no = self.names[x.primPath], spec.add_tendon(name=self.names[x.primPath]), -np.inf
            for i in (0, 1):
                place = self.metre * np.array(getattr(x, f"localPose{i}Position"), float)
                body = spec.body(self.link(getattr(x, f"body{i}")))
                tendon.wrap_site(body.add_site(name=f"{name} end {i}", pos=place).name)
            low = self.metre * x.limit.lower if x.minEnabled else no
            high = self.metre * x.limit.upper if x.maxEnabled else -no
            if low == high:
                added = spec.add_equality(name=name, name1=name, objtype=mujoco().mjtObj.mjOBJ_TENDON)
                added.type = mujoco().mjtEq.mjEQ_TENDON
                model = spec.copy().compile()
                added.data[0] = low - float(model.tendon_length0[model.tendon(name).id])
            elif x.minEnabled or x.maxEnabled:
                tendon.limited, tendon.range = mujoco().mjtLimited.mjLIMITED_TRUE, [low, high]
            self.rows.append(("distance joint", name, "used", "as a tendon"))

    def _drive(self, spec: Any) -> None:
        """Drives as actuators: f = k (x* - x) + c (v* - v)."""
        moving, targets = {joint.name for joint in spec.joints}, list[float]()
        for x in self.of("RevoluteJoint", "PrismaticJoint", "D6Joint"):
            name = self.names[x.primPath]
            single = x.type.name != "D6Joint"
            drives = [("", x.drive)] if single else [(p.first.name, p.second) for p in x.jointDrives]
            for dof, drive in drives:
                slides = x.type.name == "PrismaticJoint" or dof.startswith("Trans")
                joint = name if single or name in moving else f"{name} {dof}"
                if not (drive.enabled and x.jointEnabled):
                    continue
                if joint not in moving:
                    self.rows.append(("drive", joint, "ignored", "its joint closes a loop, or does not move"))
                    continue
                if drive.acceleration:
                    self.rows.append(
                        ("drive of accelerations", joint, "approximated", "its gains count for forces")
                    )
                targets.append(self._add_drive(spec, joint, drive, slides))
        if any(targets):
            if not spec.keys:
                spec.add_key(name="start", qpos=np.array(spec.copy().compile().qpos0))
            spec.keys[0].ctrl = targets

    def _add_drive(self, spec: Any, joint: str, drive: Any, slides: bool) -> float:
        """Adds one; returns its target as the file has it."""
        unit = self.metre if slides else _DEGREE
        force = self.kilogram * self.metre * (1.0 if slides else self.metre)
        k, c = drive.stiffness * force / unit, drive.damping * force / unit
        target, rate = unit * drive.targetPosition, unit * drive.targetVelocity
        motor = spec.add_actuator(name=joint, target=joint, trntype=mujoco().mjtTrn.mjTRN_JOINT)
        if k or c:
            motor.biastype = mujoco().mjtBias.mjBIAS_AFFINE
            motor.gainprm[0] = k or c
            motor.biasprm[:3] = c * rate if k else 0.0, -k, -c
        if drive.forceLimit * force < ENDLESS:
            motor.forcelimited = mujoco().mjtLimited.mjLIMITED_TRUE
            motor.forcerange = [-drive.forceLimit * force, drive.forceLimit * force]
        return target if k else rate if c else 0.0

    # --- the rest

    def _exclude(self, spec: Any) -> None:
        """Contacts of bodies that a joint joins, and of groups and pairs that the file filters."""
        ends = [(x.body0, x.body1) for x in self.joints if not x.collisionEnabled]
        pairs = [pair for pair in ends if WORLD not in map(self.link, pair)]
        pairs += [(x.primPath, y) for x in self.of("RigidBody", "Articulation") for y in x.filteredCollisions]
        members: dict[Any, list[Any]] = {}
        kinds = [kind for kind in self.by_kind if kind.endswith("Shape")]
        for x in self.of(*kinds):
            pairs += [(x.rigidBody, y) for y in x.filteredCollisions]
            for group in x.collisionGroups:
                members.setdefault(group, []).append(x.rigidBody)
        for group in self.of("CollisionGroup"):
            for other in group.filteredGroups:
                pairs += [(a, b) for a in members.get(group.primPath, ()) for b in members.get(other, ())]
        done = set[frozenset[str]]()
        for ends in pairs:
            names = frozenset(self.link(x) for x in ends)
            if len(names) < 2 or names in done:
                continue
            done.add(names)
            if WORLD in names:
                (body,) = names - {WORLD}
                self.rows.append(("filter of contacts with what stands still", body, "ignored", "they stay"))
            else:
                first, second = sorted(names)
                spec.add_exclude(name=f"{first}-{second}", bodyname1=first, bodyname2=second)

    def _list_other_schemas(self) -> Iterator[Row]:
        """Schemas that are not UsdPhysics' own."""
        for prim in self.stage.Traverse():
            given = prim.GetMetadata("apiSchemas")
            for schema in given.GetAddedOrExplicitItems() if given else ():
                if not schema.startswith(
                    ("Physics", "MaterialBinding", "Collection", "Skel", "Shaping", "GeomModel", "Semantics")
                ):
                    why = "not read, but for armature" if schema.startswith("PhysxJoint") else "not read"
                    yield f"schema {schema.partition(':')[0]}", prim.GetName(), "ignored", why


_UNITS = {"X": np.array([1.0, 0.0, 0.0]), "Y": np.array([0.0, 1.0, 0.0]), "Z": np.array([0.0, 0.0, 1.0])}


def _turn_z_to(axis: str) -> np.ndarray:
    turns = {
        "X": Rotation.from_euler("y", 90, degrees=True),
        "Y": Rotation.from_euler("x", -90, degrees=True),
    }
    return place_of(turn=turns.get(axis))


def _weigh(shapes: list[Shape]) -> tuple[float, np.ndarray, np.ndarray] | None:
    """Mass, place and inertia of shapes of a density, by MuJoCo; None without mass."""
    spec = mujoco().MjSpec()
    body = spec.worldbody.add_body(name="body")
    for i, shape in enumerate(shapes):
        add_shape(spec, body, shape._replace(name=f"{i}"), True)
    if not shapes:
        return None
    model = spec.compile()
    mass = float(model.body_mass[1])
    turn = Rotation.from_quat(model.body_iquat[1], scalar_first=True)
    return (mass, place_of(model.body_ipos[1], turn), np.diag(model.body_inertia[1])) if mass > 0 else None
