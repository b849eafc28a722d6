"""Drake on the benchmark mechanisms: hinges in a tree, each loop a ball constraint of its discrete SAP solver.

Drake 1.51 has these constraints only in plants of fixed steps; those with error control, CENIC among them, refuse them.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from _peer_cases import Case, Single, error, steps_of
from _peer_mechanisms import GROUND, Mechanism

Array = np.ndarray


def prepare_run(mechanism: Mechanism, h: float, t1: float) -> Callable[[], Array]:
    """A run from the start in steps of h to t1 [s], as a function of nothing that returns the angles."""
    from pydrake.math import RigidTransform
    from pydrake.multibody.plant import DiscreteContactApproximation, MultibodyPlant
    from pydrake.multibody.tree import FixedOffsetFrame, RevoluteJoint, RotationalInertia, SpatialInertia
    from pydrake.systems.analysis import Simulator

    plant, links = MultibodyPlant(h), {}
    plant.set_discrete_contact_approximation(DiscreteContactApproximation.kSap)
    links[GROUND] = plant.world_body()
    at = lambda point: np.array([*point, 0.0])
    for i, body in enumerate(mechanism.bodies):
        moments = RotationalInertia(*[body.inertia] * 3)
        inertia = SpatialInertia.MakeFromCentralInertia(body.mass, at(body.centre), moments)
        links[i] = plant.AddRigidBody(f"body {i}", inertia)
        pivot = RigidTransform(at(body.pivot))
        frame = plant.AddFrame(FixedOffsetFrame(f"pivot {i}", links[body.parent].body_frame(), pivot))
        plant.AddJoint(RevoluteJoint(f"hinge {i}", frame, links[i].body_frame(), [0.0, 0.0, 1.0]))
    for loop in mechanism.loops:
        plant.AddBallConstraint(links[loop.body], at(loop.point), links[loop.other], at(loop.other_point))
    plant.mutable_gravity_field().set_gravity_vector([0.0, -mechanism.gravity, 0.0])
    plant.Finalize()
    simulator, start = Simulator(plant), np.concatenate(mechanism.start)

    def run() -> Array:
        context: Any = simulator.get_mutable_context()
        context.SetTime(0.0)
        plant.SetPositionsAndVelocities(context, start)
        simulator.Initialize()
        simulator.AdvanceTo(t1)
        return plant.GetPositions(context).copy()

    return run


def singles(case: Case, quick: bool) -> Iterator[Single]:
    """The case at several steps; the squeezer, whose spring Drake would take as a force element, is left out."""
    if case.mechanism.spring is not None:
        return
    for h, _ in steps_of(case, (2e-3,) if quick else (5e-3, 2e-3, 1e-3)):
        make = functools.partial(prepare_run, case.mechanism, h, case.t1)
        yield Single("Drake", f"SAP, h = {h:.3g}", make, error(case, 1), case.mechanism.drift)
