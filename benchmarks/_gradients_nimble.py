"""The Jacobians of `contact_gradients.py` by nimblephysics, as JSON; with an interpreter of its own: it needs NumPy 1."""

import json

import numpy as np
from _contact_tasks import STEPS, TASKS
from nimblephysics_libs import _nimblephysics as nimble


def ball(task):
    found = nimble.dynamics.Skeleton()
    _, body = found.createTranslationalJoint2DAndBodyNodePair()
    body.createShapeNode(nimble.dynamics.SphereShape(task.radius or task.lift)).createCollisionAspect()
    body.setFrictionCoeff(0.0)
    body.setRestitutionCoeff(task.e)
    body.setMass(1.0)
    return found


def block(place, size):
    found = nimble.dynamics.Skeleton()
    joint, body = found.createWeldJointAndBodyNodePair()
    offset = nimble.math.Isometry3()
    offset.set_translation(place)
    joint.setTransformFromParentBodyNode(offset)
    body.createShapeNode(nimble.dynamics.BoxShape(size)).createCollisionAspect()
    body.setFrictionCoeff(0.0)
    body.setRestitutionCoeff(1.0)
    return found


def jacobian(task):
    world = nimble.simulation.World()
    world.setGravity([0, -task.gravity, 0])
    world.setTimeStep(task.end / STEPS)
    things = [ball(task) for _ in range(task.balls)]
    things += [block([0, -0.5, 0], [20.0, 1.0, 20.0])] if task.floor else []
    things += [block([task.wall + 0.5, 0, 0], [1.0, 20.0, 20.0])] if task.wall is not None else []
    for x in things:
        world.addSkeleton(x)
    start = np.array(task.start, float)
    start[1] += task.lift
    world.setState(start)
    found, action = np.eye(start.size), np.zeros(world.getActionSize())
    action[:2] = task.force
    for _ in range(STEPS):
        world.setAction(action)
        found = nimble.neural.forwardPass(world).getStateJacobian(world) @ found
    return np.array(task.outward(world.getState())) @ found[: 2 * task.balls]


if __name__ == "__main__":
    print(json.dumps({"nimblephysics": [jacobian(task).tolist() for task in TASKS]}))
