"""How a kinematic tree moves: product of exponentials, velocities and accelerations, from the ground outwards.

Every joint is a chain of elements, each of one twist (Xu-Liu 2017, eq. (15)) or one ball. A frame is the motion
away from the reference posture, so the frame behind an element is that before it times its exponential,

    g = e^(hat(xi_1) q_1) ... e^(hat(xi_i) q_i),

and it carries every point and axis that was given in the reference posture. An element turns what lies behind it with
w about an axis through its point o, and slides it with s. So with the arm r from the point of the element before,

    omega = omega' + w                  u = u' + omega' x r + s
    alpha = alpha' + omega' x w         a = a' + alpha' x r + omega' x (omega' x r) + 2 omega' x s

are the rates of the frame, those with a dash of the frame before: turning, and of what of it is at the point.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from .._misc._lie import quaternion_product, quaternion_rate, rotation_about, rotation_matrix
from .._misc._types import Coordinates, Velocities
from ._placement import Twist

# --- Recursion along a tree


Before = Sequence[int]
"""The node before each, which stands before it in the list; 0 for the ground, i + 1 for node i."""


def _as_indices(values: Sequence[int]) -> Array:
    return jnp.asarray(np.asarray(values, np.uint32))  # JAX takes no care of negative ones then


def _read_node(states: Any, place: Array) -> Any:
    return jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, place, keepdims=False), states)


def outwards(before: Before, combine: Callable[[Any, Any], Any], ground: Any, given: Any) -> Any:
    """The states of all nodes, stacked behind that of the ground: each from that of the node before and what is given."""
    room = lambda x: jnp.concatenate([x[None], jnp.zeros((len(before), *x.shape), x.dtype)])
    states = jax.tree.map(room, ground)

    def visit(states: Any, at: Any) -> tuple[Any, None]:
        place, parent, own = at
        state = combine(_read_node(states, parent), own)
        put = lambda x, new: lax.dynamic_update_index_in_dim(x, new, place, 0)
        return jax.tree.map(put, states, state), None

    places = _as_indices(range(1, len(before) + 1))
    return lax.scan(visit, states, (places, _as_indices(before), given))[0]


def inwards(before: Before, passed: Callable[[Any, Any], Any], own: Any, given: Any) -> Any:
    """The sum, for each node, of what is its own and what all nodes behind pass on to it."""
    sums = jax.tree.map(lambda x: jnp.concatenate([jnp.zeros_like(x[:1]), x]), own)

    def visit(sums: Any, at: Any) -> tuple[Any, None]:
        place, parent, its = at
        more = jax.tree.map(jnp.add, _read_node(sums, parent), passed(_read_node(sums, place), its))
        put = lambda x, new: lax.dynamic_update_index_in_dim(x, new, parent, 0)
        return jax.tree.map(put, sums, more), None

    places = _as_indices(range(1, len(before) + 1))
    sums = lax.scan(visit, sums, (places, _as_indices(before), given), reverse=True)[0]
    return jax.tree.map(lambda x: x[1:], sums)


# --- Motion


_LEVI_CIVITA = np.zeros((3, 3, 3))
for _a, _b, _c in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
    _LEVI_CIVITA[_a, _b, _c], _LEVI_CIVITA[_a, _c, _b] = 1.0, -1.0


def cross(x: Float[Array, "*k 3"], y: Float[Array, "*k 3"]) -> Float[Array, "*k 3"]:
    """x cross y, as two products with constants: far fewer operations to trace than `jnp.cross`."""
    return jnp.einsum(
        "...ac,...c->...a", jnp.einsum("...b,bac->...ac", x, -jnp.asarray(_LEVI_CIVITA, x.dtype)), y
    )


class Element(NamedTuple):
    """One factor of the product of exponentials."""

    # `kind`: `"twist"`, one coordinate, or `"ball"`, a quaternion and three angular velocities.
    kind: Literal["twist", "ball"]
    before: int  # the frame it starts from; 0 is the ground, i + 1 the frame behind element i
    # `q`, `v`: where its coordinates and its velocities start.
    q: int
    v: int

    @property
    def velocities(self) -> range:
        """The numbers of its velocities."""
        return range(self.v, self.v + (3 if self.kind == "ball" else 1))


class TreeLayout(NamedTuple):
    """What hangs on what: elements from the ground outwards, the frame of each body, the number of states of first
    order, which are velocities behind the others that move nothing; and whether all turn about axes of coordinates in
    the reference posture, and not all about the same."""

    elements: tuple[Element, ...]
    frames: tuple[int, ...]
    states: int = 0
    aligned: bool = False

    @property
    def before(self) -> list[int]:
        """The frame each element starts from."""
        return [element.before for element in self.elements]

    @property
    def nv(self) -> int:
        """The number of velocities, states included."""
        return sum(len(element.velocities) for element in self.elements) + self.states

    @property
    def of_velocity(self) -> list[int]:
        """The number of the element each velocity is of; of states any, since along their axes nothing moves."""
        element_of = {k: i for i, element in enumerate(self.elements) for k in element.velocities}
        return [element_of.get(k, 0) for k in range(self.nv)]

    def places(self, kind: str, coordinates: int) -> tuple[np.ndarray, np.ndarray]:
        """Where the coordinates and the velocities of elements of a kind are, element by element (k, ...)."""
        own = [e for e in self.elements if e.kind == kind]
        rows = lambda starts, size: np.array(starts, int)[:, None] + np.arange(size)
        return rows([e.q for e in own], coordinates), rows([e.v for e in own], max(coordinates - 1, 1))

    def rate(self, q: Coordinates, v: Velocities) -> Coordinates:
        """q' = N(q) v: the velocities themselves, and half a quaternion product for a ball."""
        (of_q, of_v), (balls_q, balls_v) = self.places("twist", 1), self.places("ball", 4)
        turning = jax.vmap(quaternion_rate)(q[balls_q], v[balls_v])
        parts = jnp.concatenate([jnp.ravel(v[of_v]), jnp.ravel(turning)])
        return parts[np.argsort([*of_q.flat, *balls_q.flat])]

    def ownership(self) -> Bool[np.ndarray, "elements n"]:
        """Whether a velocity is of an element."""
        return np.arange(len(self.elements))[:, None] == np.array(self.of_velocity, int)[None]

    def moved(self, bodies: tuple[int, ...]) -> Bool[np.ndarray, "bodies n"]:
        """Whether a velocity moves a body; -1 is the ground."""
        reach = [np.zeros(self.nv, bool)]
        for element, own in zip(self.elements, self.ownership(), strict=True):
            reach.append(reach[element.before] | own)
        return np.stack([reach[self.frames[i] if i >= 0 else 0] for i in bodies])

    def moving_velocities(self, bodies: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of the velocities that move each of some bodies, as many as of the one with the most (k, w), and
        which of them do."""
        moved = self.moved(bodies)
        width = max(int(moved.sum(1).max(initial=0)), 1)
        numbers = np.argsort(~moved, axis=1, kind="stable")[:, :width]
        return numbers, np.take_along_axis(moved, numbers, 1)

    def carriers(self) -> list[int]:
        """The frame that carries the axis of each velocity: a ball's axes turn with what is behind it."""
        return [
            i + 1 if self.elements[i].kind == "ball" else self.elements[i].before for i in self.of_velocity
        ]


@final
class Posture(eqx.Module):
    """A tree at one q, in world axes; of frames the ground's comes first."""

    rotation: Float[Array, "frames 3 3"]  # of the frames, away from the reference posture
    origin: Float[Array, "frames 3"]  # where the element before each frame has its point [m]
    slip: Float[Array, "frames 3"]  # how far the frame has slid along that element [m]
    angle: Float[Array, " frames"]  # by how much frames have turned in the plane [rad]
    arm: Float[Array, "elements 3"]  # from the point of the element before, to that of each element [m]
    # `angular`, `linear`: what each velocity does: directions turned about [1], slides [m/rad or 1].
    angular: Float[Array, "n 3"]
    linear: Float[Array, "n 3"]
    turn: Float[Array, "elements 3 3"]  # the rotation of each element alone
    slide: Float[Array, "elements 3"]  # how far each slides, in axes of the frame before it [m]


@final
class Rates(eqx.Module):
    """How frames move, the ground's first, or some of them: turning, and what of them is at their origin."""

    omega: Float[Array, "*frames 3"]
    velocity: Float[Array, "*frames 3"]
    alpha: Float[Array, "*frames 3"]
    acceleration: Float[Array, "*frames 3"]

    def at(self, frames: np.ndarray, arm: Float[Array, "k 3"]) -> "Rates":
        """The same of places on some frames, by how far they are from the origins of these [m]."""
        omega, alpha = self.omega[frames], self.alpha[frames]
        swing = cross(omega, arm)
        acceleration = self.acceleration[frames] + cross(alpha, arm) + cross(omega, swing)
        return Rates(omega, self.velocity[frames] + swing, alpha, acceleration)

    @property
    def twist(self) -> Twist:
        """Turning, and the velocity."""
        return Twist(self.omega, self.velocity)

    @property
    def twist_rate(self) -> Twist:
        """Its rate."""
        return Twist(self.alpha, self.acceleration)


def _advance_rates(before: Rates, own: tuple[Array, Rates]) -> Rates:
    """The rates behind an element, from its arm and its own share."""
    arm, its = own
    swing = cross(before.omega, arm)
    carried = cross(before.alpha, arm) + cross(before.omega, swing + 2.0 * its.velocity)
    return Rates(
        before.omega + its.omega,
        before.velocity + swing + its.velocity,
        before.alpha + cross(before.omega, its.omega) + its.alpha,
        before.acceleration + carried + its.acceleration,
    )


@final
class Chains(eqx.Module):
    """The bodies of a tree in the reference posture and what they hang on, as arrays."""

    layout: TreeLayout = eqx.field(static=True)
    # `angular`, `linear`: what each velocity does.
    angular: Float[Array, "n 3"]
    linear: Float[Array, "n 3"]
    point: Float[Array, "elements 3"]  # of each element [m]
    # `offset`: how far each is put off from there, with all behind it [m]; None for not at all.
    offset: Float[Array, "elements 3"] | None
    # `mass`, `centre`, `inertia`: of the bodies, about their centres.
    mass: Float[Array, " bodies"]
    centre: Float[Array, "bodies 3"]
    inertia: Float[Array, "bodies 3 3"]

    def _motions(self, q: Coordinates) -> tuple[Array, Array, Array]:
        """What each element does by itself: a rotation, a slide, an angle in the plane."""
        places, parts = [], []
        for kind, function in (("twist", self._move_twists), ("ball", self._turn_balls)):
            own = [i for i, e in enumerate(self.layout.elements) if e.kind == kind]
            if own:
                places += own
                parts.append(function(q, [self.layout.elements[i] for i in own]))
        ordered = np.argsort(np.array(places, int))
        rotation, slip, angle = (jnp.concatenate(x)[ordered] for x in zip(*parts, strict=True))
        return rotation, slip, angle

    def _move_twists(self, q: Coordinates, elements: list[Element]) -> tuple[Array, Array, Array]:
        k, x = np.array([e.v for e in elements]), q[np.array([e.q for e in elements])]
        return (
            jax.vmap(rotation_about)(self.angular[k], x),
            self.linear[k] * x[:, None],
            self.angular[k, 2] * x,
        )

    def _turn_balls(self, q: Coordinates, elements: list[Element]) -> tuple[Array, Array, Array]:
        starts, none = np.array([e.q for e in elements]), jnp.zeros((len(elements), 3), q.dtype)
        return jax.vmap(rotation_matrix)(q[starts[:, None] + np.arange(4)]), none, none[:, 0]

    @eqx.filter_jit
    def posture(self, q: Coordinates) -> Posture:
        """Where frames and axes are at q (Xu-Liu 2017, eqs. (15) and (37)).

        Compiled: outside of `jit` JAX would compile the loop over the tree at each call.
        """
        o = jnp.zeros(3, q.dtype)
        ground = (jnp.eye(3, dtype=q.dtype), o, o, jnp.zeros((), q.dtype))

        def behind(before: tuple[Array, ...], own: tuple[Array, ...]) -> tuple[Array, ...]:
            (R, origin, slip, angle), (rotation, slid, turned, offset) = before, own
            return R @ rotation, origin + slip + R @ offset, R @ slid, angle + turned

        before = np.array(self.layout.before, int)
        given = (*self._motions(q), self._element_arms())
        R, origin, slip, angle = outwards(self.layout.before, behind, ground, given)
        carrying = R[np.array(self.layout.carriers(), int)]
        angular, linear = (jnp.einsum("kab,kb->ka", carrying, x) for x in (self.angular, self.linear))
        arm = slip[before] + jnp.einsum("kab,kb->ka", R[before], given[-1])
        return Posture(R, origin, slip, angle, arm, angular, linear, given[0], given[1])

    def _element_arms(self) -> Float[Array, "elements 3"]:
        """From the point of the element before to that of each, in the reference posture [m]."""
        apart = self.point - self._points()[np.array(self.layout.before, int)]
        return apart if self.offset is None else apart + self.offset

    def _points(self) -> Float[Array, "frames 3"]:
        return jnp.concatenate([jnp.zeros_like(self.point[:1]), self.point])

    def levers(self, posture: Posture) -> Float[Array, "bodies 3"]:
        """From the origin of the frame of each body to its centre [m]."""
        frames = np.array(self.layout.frames, int)
        turned = jnp.einsum("iab,ib->ia", posture.rotation[frames], self.centre - self._points()[frames])
        return posture.slip[frames] + turned

    # In axes of the frames these are numbers, but for slides, if a frame's origin slides with it.

    def own_arms(self, posture: Posture) -> Float[Array, "elements 3"]:
        """From the origin of the frame before each element, in its axes, to that of the frame behind [m]."""
        return self._element_arms() + posture.slide

    def own_levers(self) -> Float[Array, "bodies 3"]:
        """From there to the centre of each body on the frame, in its axes [m]."""
        return self.centre - self._points()[np.array(self.layout.frames, int)]

    @eqx.filter_jit
    def rates(self, posture: Posture, v: Velocities, a: Velocities | None = None) -> Rates:
        """How frames move with velocities v and accelerations v' = a, by default zero."""
        owned = jnp.asarray(self.layout.ownership(), v.dtype)
        share = lambda axes, x: owned @ (x[:, None] * axes)
        o = jnp.zeros(3, v.dtype)
        own = [share(axes, v) for axes in (posture.angular, posture.linear)]
        more = [
            jnp.zeros_like(own[0]) if a is None else share(axes, a)
            for axes in (posture.angular, posture.linear)
        ]
        return outwards(
            self.layout.before, _advance_rates, Rates(o, o, o, o), (posture.arm, Rates(*own, *more))
        )

    def velocities(self, q: Coordinates, rate: Coordinates) -> Velocities:
        """v of q' = N(q) v; of a quaternion that changes in length too, what its turning takes."""
        layout = self.layout
        (of_q, of_v), (balls_q, balls_v) = layout.places("twist", 1), layout.places("ball", 4)

        def turn(p: Array, rate: Array) -> Array:
            conjugate = p * jnp.asarray([1.0, -1.0, -1.0, -1.0], p.dtype)
            return 2.0 * quaternion_product(conjugate, rate)[1:] / jnp.dot(p, p)

        turning = jax.vmap(turn)(q[balls_q], rate[balls_q])
        parts = jnp.concatenate([jnp.ravel(rate[of_q]), jnp.ravel(turning)])
        ordered = parts[np.argsort([*of_v.flat, *balls_v.flat])]
        return jnp.concatenate([ordered, jnp.zeros(layout.states, rate.dtype)])
