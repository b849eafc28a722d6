"""nimblephysics: the product of the Jacobians of its steps. NIMBLE_PYTHON names an interpreter with it and NumPy 1."""

import numpy as np
import tasks
from nimblephysics_libs import _nimblephysics as nimble
from tasks import STEPS


def ball(balls):
    found = nimble.dynamics.Skeleton()
    _, body = found.createTranslationalJoint2DAndBodyNodePair()
    body.createShapeNode(nimble.dynamics.SphereShape(balls.radius)).createCollisionAspect()
    body.setFrictionCoeff(0.0)
    body.setRestitutionCoeff(balls.e)
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
    balls = task.balls

    def compute(end):
        world = nimble.simulation.World()
        world.setGravity([0, -balls.gravity, 0])
        world.setTimeStep(1 / STEPS)
        things = [ball(balls) for _ in range(balls.number)]
        things += [block([0, -0.5, 0], [20.0, 1.0, 20.0])] if balls.floor else []
        things += [block([balls.wall + 0.5, 0, 0], [1.0, 20.0, 20.0])] if balls.wall is not None else []
        for x in things:
            world.addSkeleton(x)
        world.setState(np.array(balls.start, float))
        found, action = np.eye(len(balls.start)), np.zeros(world.getActionSize())
        action[:2] = balls.force
        for _ in range(round(end * STEPS)):
            world.setAction(action)
            found = nimble.neural.forwardPass(world).getStateJacobian(world) @ found
        return found[: 2 * balls.number]

    return compute


TASKS = [x for x in tasks.TASKS if x.startswith(("impact", "resting"))]
ENGINES = {"nimblephysics": jacobian}
