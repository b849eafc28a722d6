"""Loads: what they are, gravity, and applied forces and torques.

A load knows the rate at which it works, r, linear in the twists of the bodies, and an effort e; its power is e.r. So its
generalized force is the transpose of the rate applied to the effort,

    Q = (dr / dv)^T e,

in absolute coordinates and in a tree alike (principle of virtual power). Where the effort has a potential, it
is reported.
"""

import abc
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._arguments import one_of
from .._misc._errors import InputError
from .._misc._types import Coordinates, Forces, Time, Velocities
from ._abstract_joint import AbstractAxisJoint, require_axis_joint
from ._bodies import AbstractBody, check_array, check_name
from ._laws import check_law, value_of
from ._placement import AnyPlacement, PlanarPlacement, Twist, norm, rate_of

Bodies = Mapping[str, AbstractBody]
Placements = Mapping[str, AnyPlacement]
Twists = Mapping[str, Twist]


class AbstractLoad(eqx.Module):
    """A load. Concrete ones: `Gravity`, `SpringDamper`, `TorsionalSpring`, `Force`, `Torque`, `Actuator`."""

    name: eqx.AbstractVar[str]

    @property
    @abc.abstractmethod
    def bodies(self) -> tuple[str, ...]:
        """The names of the bodies it acts on, as far as it names them."""

    @abc.abstractmethod
    def rate(self, bodies: Bodies, placements: Placements, twists: Twists) -> Array:
        """What the effort works on, linear in the twists: a velocity, an angular velocity, a rate of length.

        **Arguments:**

        - `bodies`: all bodies by name.
        - `placements`, `twists`: of all bodies and the ground, by name.
        """

    @abc.abstractmethod
    def effort(self, bodies: Bodies, t: Time, placements: Placements, twists: Twists) -> Array:
        """The force or torque that works on `rate`, of the same shape."""

    def potential(self, bodies: Bodies, placements: Placements) -> Float[Array, ""] | None:
        """The potential energy [J], or None for a load without."""
        return None


@final
class Gravity(AbstractLoad):
    """The weight m g of every body.

    **Arguments:**

    - `g`: acceleration of free fall [m/s^2] (2,) or (3,); by default 9.81 along -y in the plane and -z in space.
    - `name`: what reports call it.
    """

    g: Array | None
    name: str = eqx.field(static=True)

    def __init__(self, g: Any = None, name: str = "gravity"):
        self.g = None if g is None else check_array("g", g, (2,), (3,))
        self.name = check_name("load", name)

    @property
    def bodies(self) -> tuple[str, ...]:
        return ()

    def acceleration(self, dimension: int, dtype: jnp.dtype) -> Array:
        """That of free fall [m/s^2].

        **Arguments:**

        - `dimension`: 2 or 3, of the mechanism.
        - `dtype`: of its numbers.
        """
        default = (0.0,) * (dimension - 1) + (-9.81,)
        return jnp.asarray(default if self.g is None else self.g, dtype)

    def _weights(self, bodies: Bodies) -> Array:
        centre = next(iter(bodies.values())).centre
        g = self.acceleration(centre.size, centre.dtype)
        return jnp.stack([body.mass * g for body in bodies.values()])

    def rate(self, bodies: Bodies, placements: Placements, twists: Twists) -> Array:
        return jnp.stack([twists[name].velocity for name in bodies])

    def effort(self, bodies: Bodies, t: Time, placements: Placements, twists: Twists) -> Array:
        return self._weights(bodies)

    def potential(self, bodies: Bodies, placements: Placements) -> Float[Array, ""]:
        return -jnp.sum(self._weights(bodies) * jnp.stack([placements[name].p for name in bodies]))


class AbstractCoordinateLoad(eqx.Module):
    """A load on the coordinates of a tree: springs and dampers of its joints, tendons over them, motors.

    As any load it has a rate r, linear in v, an effort e, and the generalized force (dr / dv)^T e. A subclass has the
    field `name` and the methods below; give it among the `loads` of `tree`.
    """

    name: eqx.AbstractVar[str]

    @abc.abstractmethod
    def rate(self, q: Coordinates, v: Velocities) -> Array:
        """What the effort works on, linear in v.

        **Arguments:**

        - `q`: coordinates of the tree (n_q,).
        - `v`: its velocities (n,).
        """

    @abc.abstractmethod
    def effort(self, t: Time, q: Coordinates, v: Velocities) -> Array:
        """The force or torque that works on `rate`, of the same shape.

        **Arguments:**

        - `t`: time [s].
        - `q`, `v`: as for `rate`.
        """

    def potential(self, q: Coordinates) -> Float[Array, ""] | None:
        """The potential energy [J], or None for a load without.

        **Arguments:**

        - `q`: as for `rate`.
        """
        return None


class Touched(NamedTuple):
    """What a load on a tree acts on and depends on.

    - `coordinates`, `velocities`: the numbers of some; with one go all of its joint.
    - `bodies`: names.
    """

    coordinates: Iterable[int] = ()
    velocities: Iterable[int] = ()
    bodies: Iterable[str] = ()


class TreeMotion(NamedTuple):
    """A tree in motion, for a load that sees all of it.

    - `t`: time [s].
    - `q`, `v`: coordinates (n_q,) and velocities (n,), states of first order behind them.
    - `placements`, `twists`: of all bodies and the ground, by name.
    - `z`: the load's own states (k,).
    - `generalized`: the generalized force (n,) of efforts, given a function of a `TreeMotion` that returns the rates they
      work on, linear in v and the twists, and the efforts.
    """

    t: Time
    q: Coordinates
    v: Velocities
    placements: Placements
    twists: Twists
    z: Array
    generalized: Callable[[Callable[["TreeMotion"], Any], Any], Forces]


class AbstractTreeLoad(eqx.Module):
    """A load that sees the whole motion of a tree, and may have states z of first order: actuators with dynamics.

    As any load it has a rate r, linear in v and the twists, an effort e, and the generalized force (dr / dv)^T e. A
    subclass has the field `name`, `rate` and `effort`, and with `states` also `state_rate`; give it among the `loads` of
    `tree`.
    """

    name: eqx.AbstractVar[str]

    @property
    def states(self) -> tuple[str, ...]:
        """The names of its states (k,); none by default. In runs they are velocities of the tree behind all others."""
        return ()

    @abc.abstractmethod
    def rate(self, motion: TreeMotion) -> Array:
        """What the effort works on, linear in v and the twists.

        **Arguments:**

        - `motion`: what there is to see.
        """

    @abc.abstractmethod
    def effort(self, motion: TreeMotion) -> Array:
        """The force or torque that works on `rate`, of the same shape.

        **Arguments:**

        - `motion`: as for `rate`.
        """

    @property
    def inertia(self) -> Array | None:
        """What its rates move besides the bodies, as a rotor that a tendon turns [kg], [kg m^2]; None (the default) for
        nothing. It couples velocities, so that the mass matrix is factored as any other one."""
        return None

    def state_rate(self, motion: TreeMotion) -> Array:
        """z' (k,).

        **Arguments:**

        - `motion`: as for `rate`.
        """
        return jnp.zeros_like(motion.z)

    def coordinate_force(self, t: Time, q: Coordinates, v: Velocities, z: Array) -> Forces | None:
        """The part of the generalized force, z' included, that is known without the bodies (n,), which time steps take
        implicitly; None (the default) for none.

        **Arguments:**

        - `t`, `q`, `v`: as in `TreeMotion`.
        - `z`: its states (k,).
        """
        return None

    def touches(self, q: Coordinates, v: Velocities) -> Touched | None:
        """What it acts on and depends on; None (the default) for anything. Bodies that only contacts join to those are
        stepped by themselves.

        **Arguments:**

        - `q`, `v`: as in `TreeMotion`; their sizes count.
        """
        return None


def parts_of(load: AbstractLoad, by_name: Mapping[str, Any]) -> tuple[Any, ...]:
    """What belongs to the bodies of a load, in their order."""
    return tuple(by_name[name] for name in load.bodies)


@final
class Force(AbstractLoad):
    """A force on a point of a body.

    **Arguments:**

    - `name`: what reports call it.
    - `body`: name of the body.
    - `point`: where it acts, in the reference posture [m] (2,) or (3,).
    - `force`: constant, or a function of (t, x, v) with the point's place and velocity in the world [N].
    - `frame`: `"world"`, or `"body"` for a force that turns with the body, given in the axes of the reference posture.
    """

    name: str = eqx.field(static=True)
    body: str = eqx.field(static=True)
    point: Array
    force: Array | Callable[[Time, Array, Array], Array]
    frame: str = eqx.field(static=True)

    def __init__(self, name: str, body: str, point: Any, force: Any, frame: str = "world"):
        self.name, self.body = check_name("load", name), check_name("body", body)
        self.point = check_array(f"the point of force '{name}'", point, (2,), (3,))
        self.force = check_law(f"force '{name}'", force, "t, x, v", self.point.shape)
        self.frame = one_of(f"the frame of force '{name}'", frame, ("world", "body"))

    @property
    def bodies(self) -> tuple[str, ...]:
        return (self.body,)

    def rate(self, bodies: Bodies, placements: Placements, twists: Twists) -> Array:
        return rate_of(lambda p: p.point(self.point), parts_of(self, placements), parts_of(self, twists))

    def effort(self, bodies: Bodies, t: Time, placements: Placements, twists: Twists) -> Array:
        placement = placements[self.body]
        motion = placement.point(self.point), self.rate(bodies, placements, twists)
        force = value_of(f"force '{self.name}'", self.force, self.point.shape, t, *motion)
        return force if self.frame == "world" else placement.vector(force)


@final
class Torque(AbstractLoad):
    """A torque on a body.

    **Arguments:**

    - `name`: what reports call it.
    - `body`: name of the body.
    - `torque`: constant, or a function of (t, turned, omega) with the rotation from the reference posture, a matrix in
      space and an angle in the plane, and the angular velocity in world axes [N m] (3,), in the plane a scalar.
    - `frame`: `"world"`, or `"body"` for a torque that turns with the body, given in the axes of the reference posture.
    """

    name: str = eqx.field(static=True)
    body: str = eqx.field(static=True)
    torque: Array | Callable[[Time, Array, Array], Array]
    frame: str = eqx.field(static=True)

    def __init__(self, name: str, body: str, torque: Any, frame: str = "world"):
        self.name, self.body = check_name("load", name), check_name("body", body)
        self.torque = check_law(f"torque '{name}'", torque, "t, turned, omega", (), (3,))
        self.frame = one_of(f"the frame of torque '{name}'", frame, ("world", "body"))

    @property
    def bodies(self) -> tuple[str, ...]:
        return (self.body,)

    def rate(self, bodies: Bodies, placements: Placements, twists: Twists) -> Array:
        return twists[self.body].omega

    def effort(self, bodies: Bodies, t: Time, placements: Placements, twists: Twists) -> Array:
        placement = placements[self.body]
        planar = isinstance(placement, PlanarPlacement)
        motion = placement.angle if planar else placement.R, twists[self.body].omega
        torque = value_of(f"torque '{self.name}'", self.torque, () if planar else (3,), t, *motion)
        return torque if planar or self.frame == "world" else placement.vector(torque)


# --- Springs, dampers and actuators


class AbstractSpring(AbstractLoad):
    """A linear spring and damper: effort -k s - c s' along a length or an angle whose stretch is s."""

    stiffness: eqx.AbstractVar[Float[Array, ""]]
    damping: eqx.AbstractVar[Float[Array, ""]]

    @abc.abstractmethod
    def _stretch(self, *placements: AnyPlacement) -> Float[Array, ""]:
        """s, of the placements of `bodies`."""

    def rate(self, bodies: Bodies, placements: Placements, twists: Twists) -> Array:
        return rate_of(self._stretch, parts_of(self, placements), parts_of(self, twists))

    def effort(self, bodies: Bodies, t: Time, placements: Placements, twists: Twists) -> Array:
        stretch = self._stretch(*parts_of(self, placements))
        return -self.stiffness * stretch - self.damping * self.rate(bodies, placements, twists)

    def potential(self, bodies: Bodies, placements: Placements) -> Float[Array, ""]:
        return 0.5 * self.stiffness * self._stretch(*parts_of(self, placements)) ** 2


class AbstractJointLoad(AbstractLoad):
    """A load on the position of a joint, which it may know by name until a mechanism looks that up."""

    joint: eqx.AbstractVar[AbstractAxisJoint | str]

    @property
    def bodies(self) -> tuple[str, ...]:
        return self._joint.bodies

    @property
    def _joint(self) -> AbstractAxisJoint:
        if isinstance(self.joint, str):
            raise InputError(
                f"'{self.name}' refers to joint '{self.joint}' by name: assemble it into a mechanism first."
            )
        return self.joint


@final
class SpringDamper(AbstractSpring):
    """A linear spring and damper between points of two bodies: tension k (l - l0) + c l' along their line.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the bodies.
    - `parent_point`: in the reference posture [m] (2,) or (3,).
    - `point`: of the child, likewise [m].
    - `stiffness`: k [N/m].
    - `damping`: c [N s/m].
    - `length`: l0, unstretched [m]; by default that of the reference posture.
    """

    name: str = eqx.field(static=True)
    parent: str = eqx.field(static=True)
    child: str = eqx.field(static=True)
    parent_point: Array
    point: Array
    stiffness: Float[Array, ""]
    damping: Float[Array, ""]
    length: Float[Array, ""]

    def __init__(
        self,
        name: str,
        parent: str,
        child: str,
        parent_point: Any,
        point: Any,
        stiffness: Any = 0.0,
        damping: Any = 0.0,
        length: Any = None,
    ):
        self.name = check_name("load", name)
        self.parent, self.child = check_name("body", parent), check_name("body", child)
        self.point = check_array(f"the point of spring '{name}'", point, (2,), (3,))
        self.parent_point = check_array(
            f"the parent's point of spring '{name}'", parent_point, self.point.shape
        )
        self.stiffness = check_array(f"the stiffness of spring '{name}'", stiffness, ())
        self.damping = check_array(f"the damping of spring '{name}'", damping, ())
        length = norm(self.point - self.parent_point) if length is None else length
        self.length = check_array(f"the length of spring '{name}'", length, ())

    @property
    def bodies(self) -> tuple[str, ...]:
        return (self.parent, self.child)

    def _stretch(self, *placements: AnyPlacement) -> Float[Array, ""]:
        parent, child = placements
        return norm(child.point(self.point) - parent.point(self.parent_point)) - self.length


@final
class TorsionalSpring(AbstractSpring, AbstractJointLoad):
    """A spring and damper on the position s of a joint: effort -k (s - s0) - c s'; an angle, or a slide.

    In space the angle of a hinge is known between -pi and pi.

    **Arguments:**

    - `name`: what reports call it.
    - `joint`: a `Revolute`, `Prismatic`, `Cylindrical` or `Screw` joint, or the name of one in the mechanism.
    - `stiffness`: k [N m/rad], or [N/m].
    - `damping`: c [N m s/rad], or [N s/m].
    - `rest`: s0, from the reference posture [rad], or [m].
    """

    name: str = eqx.field(static=True)
    joint: AbstractAxisJoint | str
    stiffness: Float[Array, ""]
    damping: Float[Array, ""]
    rest: Float[Array, ""]

    def __init__(
        self,
        name: str,
        joint: AbstractAxisJoint | str,
        stiffness: Any = 0.0,
        damping: Any = 0.0,
        rest: Any = 0.0,
    ):
        self.name = check_name("load", name)
        require_axis_joint(f"the joint of spring '{name}'", joint)
        self.joint = joint
        self.stiffness = check_array(f"the stiffness of spring '{name}'", stiffness, ())
        self.damping = check_array(f"the damping of spring '{name}'", damping, ())
        self.rest = check_array(f"the rest of spring '{name}'", rest, ())

    def _stretch(self, *placements: AnyPlacement) -> Float[Array, ""]:
        return self._joint.position(*placements) - self.rest


@final
class Actuator(AbstractJointLoad):
    """A motor on a joint: a torque about the axis of a hinge, a force along a slide. Also an input for servo control.

    **Arguments:**

    - `name`: what reports call it.
    - `joint`: a `Revolute`, `Prismatic`, `Cylindrical` or `Screw` joint, or the name of one in the mechanism.
    - `drive`: the effort, constant or a function of (t, s, s') with the joint's position and its rate [N m], [N]; zero
      where only servo control is to command it (`input_matrix`).
    """

    name: str = eqx.field(static=True)
    joint: AbstractAxisJoint | str
    drive: Array | Callable[[Time, Array, Array], Array]

    def __init__(self, name: str, joint: AbstractAxisJoint | str, drive: Any = 0.0):
        self.name = check_name("load", name)
        require_axis_joint(f"the joint of actuator '{name}'", joint)
        self.joint = joint
        self.drive = check_law(f"the drive of actuator '{name}'", drive, "t, s, rate", ())

    def rate(self, bodies: Bodies, placements: Placements, twists: Twists) -> Array:
        return rate_of(self._joint.position, parts_of(self, placements), parts_of(self, twists))

    def effort(self, bodies: Bodies, t: Time, placements: Placements, twists: Twists) -> Array:
        position = self._joint.position(*parts_of(self, placements))
        rate = self.rate(bodies, placements, twists)
        return value_of(f"the drive of actuator '{self.name}'", self.drive, (), t, position, rate)


@final
class CommandedDrive(eqx.Module):
    """The drive of an actuator that exerts an input on top of its own."""

    own: Array | Callable[[Time, Array, Array], Array]
    u: Float[Array, ""]

    def __call__(self, t: Time, position: Array, rate: Array) -> Array:
        return (
            value_of("the drive of an actuator", self.own, (), t, position, rate).astype(self.u.dtype)
            + self.u
        )


def command_actuators(system: Any, actuators: Mapping[str, Float[Array, ""]]) -> Any:
    """A mechanism whose actuators exert inputs."""
    loads = tuple(
        eqx.tree_at(lambda x: x.drive, load, CommandedDrive(load.drive, actuators[load.name]))
        if load.name in actuators
        else load
        for load in system.mechanism.loads
    )
    return eqx.tree_at(lambda x: x.mechanism.loads, system, loads) if actuators else system
