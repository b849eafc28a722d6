"""A compiled model of MuJoCo, a tree of hinges and slides on the ground, rebuilt in Drake."""

import functools
import importlib.util
from typing import Any

import numpy as np


def _placement(position: np.ndarray, quaternion: np.ndarray) -> Any:
    from pydrake.common.eigen_geometry import Quaternion
    from pydrake.math import RigidTransform

    return RigidTransform(Quaternion(quaternion / np.linalg.norm(quaternion)), position)


def build_plant(model: Any, h: float = 0.0) -> Any:
    """Drake's plant, of one joint for each of MuJoCo's, with steps of h [s] or continuous.

    **Arguments:**

    - `model`: MuJoCo's; each moving body has one hinge or slide.
    - `h`: 0 for a continuous plant.
    """
    from pydrake.math import RigidTransform
    from pydrake.multibody.plant import MultibodyPlant
    from pydrake.multibody.tree import (
        FixedOffsetFrame,
        PrismaticJoint,
        RevoluteJoint,
        RotationalInertia,
        SpatialInertia,
        WeldJoint,
    )

    plant = MultibodyPlant(h)
    plant.mutable_gravity_field().set_gravity_vector(np.array(model.opt.gravity))
    links = [plant.world_body()]
    for i in range(1, model.nbody):
        inertia = SpatialInertia.Zero()
        if model.body_mass[i] > 0.0:
            own = _placement(model.body_ipos[i], model.body_iquat[i])
            moments = RotationalInertia(*model.body_inertia[i])
            inertia = SpatialInertia.MakeFromCentralInertia(model.body_mass[i], np.zeros(3), moments)
            inertia = inertia.ReExpress(own.rotation()).Shift(-own.translation())
        links.append(plant.AddRigidBody(f"body {i}", inertia))
        parent = links[model.body_parentid[i]].body_frame()
        place = _placement(model.body_pos[i], model.body_quat[i])
        if not model.body_jntnum[i]:
            plant.AddJoint(WeldJoint(f"weld {i}", parent, links[i].body_frame(), place))
            continue
        joint = int(model.body_jntadr[i])
        anchor = RigidTransform(np.array(model.jnt_pos[joint]))
        ends = [
            plant.AddFrame(FixedOffsetFrame(f"{side} {i}", frame, where))
            for side, frame, where in (
                ("outer", parent, place @ anchor),
                ("inner", links[i].body_frame(), anchor),
            )
        ]
        kind = RevoluteJoint if model.jnt_type[joint] == 3 else PrismaticJoint
        damping = float(model.dof_damping[model.jnt_dofadr[joint]])
        plant.AddJoint(kind(f"joint {i}", *ends, np.array(model.jnt_axis[joint]), damping=damping))
    plant.Finalize()
    return plant


@functools.cache
def _simulator(model: Any, scheme: str, size: float) -> tuple[Any, Any]:
    from pydrake.systems.analysis import ApplySimulatorConfig, Simulator, SimulatorConfig

    plant = build_plant(model, 0.0 if scheme else size)
    simulator = Simulator(plant)
    if scheme:
        config = SimulatorConfig(integration_scheme=scheme, max_step_size=0.1, accuracy=size)
        ApplySimulatorConfig(config, simulator)
    return plant, simulator


def run_by_drake(model: Any, qpos: np.ndarray, t1: float, scheme: str, size: float) -> np.ndarray | None:
    """qpos at t1 of a run from rest; None without Drake.

    **Arguments:**

    - `model`, `qpos`: MuJoCo's, and where to start.
    - `t1`: the end [s].
    - `scheme`: the integrator, with error control, and `size` its accuracy; `""` for a discrete plant of these steps.
    - `size`: see there.
    """
    if importlib.util.find_spec("pydrake") is None:
        return None
    plant, simulator = _simulator(model, scheme, size)
    context = simulator.get_mutable_context()
    context.SetTime(0.0)
    plant.SetPositions(context, qpos - model.qpos0)
    plant.SetVelocities(context, np.zeros(model.nv))
    simulator.Initialize()
    simulator.AdvanceTo(t1)
    return plant.GetPositions(context) + model.qpos0
