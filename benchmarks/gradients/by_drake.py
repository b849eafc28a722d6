"""Drake: forward mode by AutoDiff through a continuous plant, with error control at 1e-9 (third order).

Contacts are its springs and dampers by `penetration_allowance`, without restitution: properties of materials are numbers
without derivatives, which such a plant refuses.
"""

import numpy as np
from pydrake.autodiffutils import AutoDiffXd, ExtractGradient, InitializeAutoDiff
from pydrake.geometry import SceneGraphConfig
from pydrake.multibody.parsing import Parser
from pydrake.multibody.plant import AddMultibodyPlantSceneGraph
from pydrake.systems.analysis import Simulator_
from pydrake.systems.framework import DiagramBuilder

CONFIG = SceneGraphConfig()
default = CONFIG.default_proximity_properties
default.hunt_crossley_dissipation = default.point_stiffness = default.relaxation_time = None


def jacobian(task):
    if "<equality>" in task.mjcf:
        raise NotImplementedError("has loops in discrete plants only, without derivatives")
    if "frictionloss=" in task.mjcf:
        raise NotImplementedError("reads no dry friction of joints")
    builder = DiagramBuilder()
    plant, scene = AddMultibodyPlantSceneGraph(builder, time_step=0.0)
    Parser(builder).AddModelsFromString(task.mjcf.replace("TIMESTEP", "0.001"), "xml")
    plant.Finalize()
    scene.set_config(CONFIG)
    diagram = builder.Build().ToAutoDiffXd()
    plant = diagram.GetSubsystemByName("plant")
    free = len(task.qpos) > len(task.qvel)
    # qpos is places, quaternion and qvel velocity in the world, turn in the body; Drake has turns first, in the world
    order = [3, 4, 5, 6, 0, 1, 2] if free else [*range(len(task.qpos))]
    rates = [3, 4, 5, 0, 1, 2] if free else [*range(len(task.qvel))]

    def compute(end):
        p = InitializeAutoDiff(np.zeros(task.dqpos.shape[1])).ravel()
        simulator = Simulator_[AutoDiffXd](diagram)
        simulator.get_mutable_integrator().set_target_accuracy(1e-9)
        context = plant.GetMyMutableContextFromRoot(simulator.get_mutable_context())
        if task.inputs:
            plant.get_actuation_input_port().FixValue(context, np.array([AutoDiffXd(x) for x in task.inputs]))
        plant.SetPositions(context, (task.qpos + task.dqpos @ p)[order])
        plant.SetVelocities(context, (task.qvel + task.dqvel @ p)[rates])
        simulator.AdvanceTo(end)
        q, v = plant.GetPositions(context)[np.argsort(order)], plant.GetVelocities(context)
        if free:
            turn = plant.GetBodyByName("body").EvalPoseInWorld(context).rotation().matrix()
            v = np.concatenate([v[3:], turn.T @ v[:3]])
        found = ExtractGradient(np.concatenate([q, v])[task.rows].reshape(-1, 1))
        return found if found.size else np.zeros((len(task.rows), len(p)))

    return compute


ENGINES = {"Drake": jacobian}
