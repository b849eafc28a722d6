"""The contact problems that ContactBench's own code makes of cube, Solo, Talos and Allegro hand, as files .npz.

`python benchmarks/contact_bench_problems.py ContactBench FOLDER` takes a copy of github.com/Simple-Robotics/ContactBench
(at its commit 76fd04b) and writes FOLDER/cube.npz and others, for `contact_problems.py FOLDER`. Models, postures, forces
and bases of contacts are those of its `examples/utils/models.py` and `pin_utils.py`. What its compiled part would do is
done here, by Pinocchio's Jacobians of joints. It needs `pin`, and the files of `example-robot-data`.
"""

import argparse
import importlib.metadata
import importlib.util
import sys
import types
from pathlib import Path

import coal
import numpy as np
import pinocchio as pin

ROBOTS = {
    "solo12": ("solo_description/robots/solo12.urdf", "solo_description/srdf/solo.srdf"),
    "talos": ("talos_data/robots/talos_reduced.urdf", "talos_data/srdf/talos.srdf"),
    "allegro_right_hand": ("allegro_hand_description/urdf/allegro_right_hand.urdf", None),
}


def loaded(name):
    """A robot of example-robot-data; those with a reference posture float."""
    files = importlib.metadata.files("example-robot-data")
    urdf, srdf = ROBOTS[name]
    at = lambda end: next(Path(x.locate()) for x in files if str(x).endswith(end))
    root = at(urdf).parents[3]  # the folder robots, beside others that meshes are searched in
    free = pin.JointModelFreeFlyer() if srdf else None
    robot = pin.RobotWrapper.BuildFromURDF(str(at(urdf)), [str(root.parents[k]) for k in (0, 1)], free)
    if srdf:
        pin.loadReferenceConfigurations(robot.model, str(at(srdf)), False)
    return robot


class Simulator:
    """One step of theirs up to the problem: g = J (v + dt a) + what closes gaps, and G = J M^-1 J^T."""

    def __init__(self, *_, **__):
        self.Del = types.SimpleNamespace(evaluateDel=lambda: None)

    def setSimulation(self, model, data, geometry, geometry_data):
        for request in geometry_data.collisionRequests:
            request.security_margin = 1e-3

    def step(self, model, data, geometry, geometry_data, q, v, tau, forces, dt, Kb, *_):
        pin.updateGeometryPlacements(model, data, geometry, geometry_data, q)
        M = pin.crba(model, data, q)
        self.M = np.triu(M) + np.triu(M, 1).T
        pin.computeJointJacobians(model, data, q)
        pin.computeCollisions(geometry, geometry_data, False)
        self.dqf = v + dt * np.array(pin.aba(model, data, q, v, tau, forces))
        rows, offsets, self.mus = [np.zeros((0, model.nv))], [], []
        for i, found in enumerate(geometry_data.collisionResults):
            pair = geometry.collisionPairs[i]
            joints = [geometry.geometryObjects[k].parentJoint for k in (pair.first, pair.second)]
            for contact in found.getContacts() if found.isCollision() else ():
                across = self.basis(contact.normal, data.oMi[joints[0]])
                R = np.stack([*across, contact.normal], axis=1)
                first, second = (self.velocity(model, data, joint, contact.pos) for joint in joints)
                rows.append(R.T @ (second - first))
                depth = contact.penetration_depth / dt
                closing = geometry.elasticities[i] * (rows[-1][2] @ v)
                offsets.append([0, 0, (Kb * depth if depth < 0 else depth) + closing])
                self.mus.append(geometry.frictions[i])
        self.J = np.concatenate(rows)
        self.vstar = -np.ravel(offsets)
        self.g = self.J @ self.dqf - self.vstar
        self.Del.G_ = self.J @ np.linalg.solve(self.M, self.J.T)

    @staticmethod
    def velocity(model, data, joint, point):
        """The Jacobian of a point of a joint's body."""
        if joint == 0:
            return np.zeros((3, model.nv))
        J = pin.getJointJacobian(model, data, joint, pin.LOCAL_WORLD_ALIGNED)
        return J[:3] + np.cross(J[3:].T, point - data.oMi[joint].translation).T


def module(name, **held):
    """A module that stands for one of theirs."""
    sys.modules[name] = made = types.ModuleType(name)
    made.__dict__.update(held)


def file_of(name, path):
    """The module of a file."""
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def their_models(copy):
    """Their `models.py`, with what it imports."""
    sys.modules["hppfcl"] = coal
    module("example_robot_data", load=loaded)
    module(
        "pycontact", DelassusDense=None, DelassusPinocchio=None, ContactProblem=lambda G, g, *x: (G, g, x[-1])
    )
    module("pycontact.utils")
    module("pycontact.simulators", CCPNewtonPrimalSimulator=Simulator)
    utils = file_of("pycontact.utils.pin_utils", copy / "bindings/pycontact/utils/pin_utils.py")
    Simulator.basis = staticmethod(utils.complete_orthonormal_basis)
    models = file_of("models", copy / "examples/utils/models.py")
    on_talos, with_ball = models.addBallsToTalos, models.addBall

    def on_frames(geometry):
        """Balls under feet whose frame is another of that joint: Pinocchio of today asks for it."""
        known = list(geometry.geometryObjects)
        on_talos(geometry)
        for x in list(geometry.geometryObjects)[len(known) :]:
            x.parentFrame = next(y.parentFrame for y in known if y.parentJoint == x.parentJoint)
        return geometry

    models.addBallsToTalos = on_frames
    # Their call leaves the restitution out.
    models.addBall = lambda *given: with_ball(*given[:-1], 0.0, given[-1])
    return models


def main():
    """Writes the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("copy", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    models = their_models(given.copy)
    made = {
        "cube": models.build_cube_problem(True),
        "cube_slide": models.build_cube_problem(True, slide=True),
        "solo": models.build_solo_problem(True, drag=False),
        "solo_drag": models.build_solo_problem(True, drag=True),
        "talos": models.build_talos_problem(True),
        "hand": models.build_allegro_hand_problem(True),
    }
    given.folder.mkdir(parents=True, exist_ok=True)
    for name, (G, g, mus) in made.items():
        np.savez(given.folder / f"{name}.npz", G=G, g=g, mus=np.array(mus))
        print(f"{name}: {len(mus)} contacts")


if __name__ == "__main__":
    main()
