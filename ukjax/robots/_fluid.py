"""The fluid around a robot, by MuJoCo's two models: drag of the box with a body's inertia, or of ellipsoids as geoms.

Both act on bodies as forces and torques at a point, in axes of the box or the ellipsoid, that follow its velocity u
against the wind and its angular velocity w there (MuJoCo's documentation, Computation, Fluid forces; Andersen, Pesavento
and Wang 2005, J. Fluid Mech. 541, 91-104). Virtual mass adds forces of velocities, but no inertia.
"""

import abc
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._types import Time, as_jax
from ..mechanisms import GROUND, AbstractLoad
from ..mechanisms._loads import Bodies, Placements, Twists
from ..mechanisms._placement import norm, rate_of
from ._passive import is_passive_off
from ._reference import LEAST, Reference, mujoco, remove_rounding
from ._report import Feature, FeatureParts


@final
class Medium(eqx.Module):
    """A fluid: its density [kg/m^3], its viscosity [Pa s] and the wind [m/s] (3,)."""

    density: Float[Array, ""]
    viscosity: Float[Array, ""]
    wind: Float[Array, "3"]


class AbstractFluidLoad(AbstractLoad):
    """What a fluid does to k shapes."""

    medium: eqx.AbstractVar[Medium]
    carriers: eqx.AbstractVar[tuple[str, ...]]  # the bodies of the tree that carry them
    centres: eqx.AbstractVar[Float[Array, "k 3"]]  # in the reference posture [m] (k, 3)
    axes: eqx.AbstractVar[Float[Array, "k 3 3"]]  # of each there, as columns (k, 3, 3)

    @property
    def bodies(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.carriers))

    @abc.abstractmethod
    def drag(self, w: Float[Array, "k 3"], u: Float[Array, "k 3"]) -> tuple[Array, Array]:
        """Torques and forces, of angular velocities and velocities against the fluid, in own axes (k, 3)."""

    def rate(self, bodies: Bodies, placements: Placements, twists: Twists) -> Array:
        own = zip(self.carriers, self.centres, strict=True)
        at = [rate_of(lambda p, x=x: p.point(x), [placements[b]], [twists[b]]) for b, x in own]
        return jnp.stack([jnp.stack([twists[b].omega for b in self.carriers]), jnp.stack(at)])

    def effort(self, bodies: Bodies, t: Time, placements: Placements, twists: Twists) -> Array:
        rotations: Any = [placements[b].R for b in self.carriers]  # pyright: ignore[reportAttributeAccessIssue]
        R = jnp.einsum("kab,kbc->kac", jnp.stack(rotations), self.axes)
        omega, velocity = self.rate(bodies, placements, twists)
        inwards, outwards = (lambda x, how=how: jnp.einsum(how, R, x) for how in ("kab,ka->kb", "kab,kb->ka"))
        return jnp.stack(
            [outwards(x) for x in self.drag(inwards(omega), inwards(velocity - self.medium.wind[None]))]
        )


@final
class BoxDrag(AbstractFluidLoad):
    """Of boxes with the inertia of bodies."""

    medium: Medium
    carriers: tuple[str, ...] = eqx.field(static=True)
    centres: Float[Array, "k 3"]
    axes: Float[Array, "k 3 3"]
    sizes: Float[Array, "k 3"]  # of their edges [m] (k, 3)
    name: str = eqx.field(static=True, default="fluid on bodies")

    def drag(self, w: Float[Array, "k 3"], u: Float[Array, "k 3"]) -> tuple[Array, Array]:
        fluid, size = self.medium, self.sizes
        other, third = (jnp.roll(size, -i, axis=1) for i in (1, 2))
        mean = jnp.mean(size, axis=1, keepdims=True)
        torque = (
            jnp.pi * mean**3 * fluid.viscosity
            + fluid.density * size * (other**4 + third**4) * jnp.abs(w) / 64.0
        )
        force = 3.0 * jnp.pi * mean * fluid.viscosity + 0.5 * fluid.density * other * third * jnp.abs(u)
        return -torque * w, -force * u


@final
class EllipsoidDrag(AbstractFluidLoad):
    """Of ellipsoids in place of geoms."""

    medium: Medium
    carriers: tuple[str, ...] = eqx.field(static=True)
    centres: Float[Array, "k 3"]
    axes: Float[Array, "k 3 3"]
    sizes: Float[Array, "k 3"]  # half axes [m] (k, 3)
    # `blunt`, `slender`, `angular`, `kutta`, `magnus`: coefficients of drag and lift (k,).
    blunt: Float[Array, " k"]
    slender: Float[Array, " k"]
    angular: Float[Array, " k"]
    kutta: Float[Array, " k"]
    magnus: Float[Array, " k"]
    # `mass`, `inertia`: of the fluid that is moved, of density 1 [m^3] (k, 3), [m^5] (k, 3).
    mass: Float[Array, "k 3"]
    inertia: Float[Array, "k 3"]
    name: str = eqx.field(static=True, default="fluid on geoms")

    def drag(self, w: Float[Array, "k 3"], u: Float[Array, "k 3"]) -> tuple[Array, Array]:
        of_one = lambda *own: _ellipsoid_drag(self.medium, *own)
        coefficients = self.blunt, self.slender, self.angular, self.kutta, self.magnus
        return jax.vmap(of_one)(w, u, self.sizes, coefficients, self.mass, self.inertia)


def _ellipsoid_drag(
    fluid: Medium,
    w: Array,
    u: Array,
    size: Array,
    coefficients: tuple[Array, ...],
    mass: Array,
    inertia: Array,
) -> tuple[Array, Array]:
    blunt, slender, angular, kutta, magnus = coefficients
    density, (_, middle, most) = fluid.density, jnp.sort(size)
    momentum, spin = density * mass * u, density * inertia * w
    torque, force = jnp.cross(momentum, u) + jnp.cross(spin, w), jnp.cross(momentum, w)
    # The area that faces the flow, and the angle between the flow and the normal there.
    faces = jnp.roll(size, -1) * jnp.roll(size, -2)
    squares, fourths = jnp.sum((faces * u) ** 2), jnp.sum(faces**4 * u**2)
    moves = squares > LEAST  # the square root has no derivative at rest
    shown = jnp.pi * jnp.where(
        moves, jnp.sqrt(jnp.where(moves, fourths / jnp.where(moves, squares, 1.0), 1.0)), 0.0
    )
    cosine = squares / jnp.maximum(LEAST, norm(u) * fourths)
    circulation = kutta * density * cosine * shown * jnp.cross(faces**2 * u, u)
    lift = magnus * density * 4.0 / 3.0 * jnp.pi * jnp.prod(size) * jnp.cross(w, u) + jnp.cross(
        circulation, u
    )
    diameter = 2.0 / 3.0 * jnp.sum(size)
    area = blunt * shown + slender * (jnp.pi * most * middle - shown)
    resistance = fluid.viscosity * 3.0 * jnp.pi * diameter + density * norm(u) * area
    other, third = jnp.roll(size, -1), jnp.roll(size, -2)
    moments = 8.0 / 15.0 * jnp.pi * size * jnp.maximum(other, third) ** 4
    largest = 8.0 / 15.0 * jnp.pi * middle * most**4
    turning = w * (angular * moments + slender * (largest - moments))
    brake = fluid.viscosity * jnp.pi * diameter**3 + density * norm(turning)
    return torque - brake * w, force + lift - resistance * u


def _boxes(at: Reference, medium: Medium, which: list[int]) -> BoxDrag:
    model, data = at.model, at.data
    inertia, mass = np.array(model.body_inertia[which]), np.array(model.body_mass[which])
    edges = np.maximum(LEAST, inertia.sum(axis=1, keepdims=True) - 2 * inertia) / mass[:, None] * 6.0
    return BoxDrag(
        medium=medium,
        carriers=tuple(at.carriers[i] for i in which),
        centres=as_jax(remove_rounding(data.xipos[which])),
        axes=as_jax(remove_rounding(data.ximat[which].reshape(-1, 3, 3))),
        sizes=as_jax(np.sqrt(edges)),
    )


def _half_axes(model: Any, geom: int) -> np.ndarray:
    kinds, size = mujoco().mjtGeom, np.array(model.geom_size[geom])
    ends = {
        kinds.mjGEOM_SPHERE: size[0],
        kinds.mjGEOM_CAPSULE: size[0] + size[1],
        kinds.mjGEOM_CYLINDER: size[1],
    }
    kind = kinds(int(model.geom_type[geom]))
    return np.array([size[0], size[0], ends[kind]]) if kind in ends else size


def _ellipsoids(at: Reference, medium: Medium, which: list[int]) -> EllipsoidDrag:
    model, data = at.model, at.data
    given = np.array(model.geom_fluid[which]).reshape(len(which), -1)
    names = "blunt", "slender", "angular", "kutta", "magnus"
    coefficients: Any = {x: as_jax(np.array(y)) for x, y in zip(names, given[:, 1:6].T, strict=True)}
    return EllipsoidDrag(
        medium=medium,
        carriers=tuple(at.carriers[model.geom_bodyid[i]] for i in which),
        centres=as_jax(remove_rounding(data.geom_xpos[which])),
        axes=as_jax(remove_rounding(data.geom_xmat[which].reshape(-1, 3, 3))),
        sizes=as_jax(np.stack([_half_axes(model, i) for i in which])),
        mass=as_jax(given[:, 6:9]),
        inertia=as_jax(given[:, 9:12]),
        **coefficients,
    )


def fluid(at: Reference) -> FeatureParts:
    """The forces of the fluid on all bodies with mass that move."""
    model, option = at.model, at.model.opt
    if is_passive_off(at) or not (option.density or option.viscosity):
        return FeatureParts()
    medium = Medium(*(as_jax(np.array(x, float)) for x in (option.density, option.viscosity, option.wind)))
    shaped = {int(model.geom_bodyid[i]): [] for i in range(model.ngeom)}
    for i in np.flatnonzero(np.array(model.geom_fluid).reshape(-1, 12)[:, 0] > 0).tolist():
        shaped[int(model.geom_bodyid[i])].append(i)
    moving = [i for i in range(model.nbody) if at.carriers[i] != GROUND and model.body_mass[i] >= LEAST]
    boxes = [i for i in moving if not shaped.get(i)]
    geoms = [geom for i in moving for geom in shaped.get(i, ())]
    loads = [
        *([_boxes(at, medium, boxes)] if boxes else []),
        *([_ellipsoids(at, medium, geoms)] if geoms else []),
    ]
    said = {"density": option.density, "viscosity": option.viscosity, "wind": np.linalg.norm(option.wind)}
    return FeatureParts(
        tuple(loads), features=(Feature("fluid", tuple(f"{name} {x:g}" for name, x in said.items() if x)),)
    )
