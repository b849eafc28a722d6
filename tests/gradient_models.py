"""The models of the grid of derivatives: each by its parameters and its start."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ukjax as uk


class Rods(uk.AbstractSystem):
    """Two planar pendulums that pull at each other, each rod given twice: singular values s, s, 0, 0."""

    mass: jax.Array
    length: jax.Array
    stiffness: jax.Array

    def mass_matrix(self, t, q):
        return self.mass * jnp.eye(4)

    def force(self, t, q, v):
        pull = self.stiffness * (q[2:] - q[:2])
        weight = self.mass * jnp.array([0.0, -9.81])
        return jnp.concatenate([weight + pull, weight - pull])

    @property
    def constraints(self):
        def rod(i: int) -> Callable:
            return lambda t, q: 0.5 * (jnp.sum(q[i : i + 2] ** 2) / self.length - self.length)

        return tuple(uk.Holonomic(rod(i), name=f"rod {i} {k}") for i in (0, 2) for k in "ab")


class Model(NamedTuple):
    """A model by its parameters and its start, both pytrees to be differentiated by.

    - `rows`: how many; `dependent` if some follow from others.
    - `singular`: whether the mass matrix is.
    - `determined`: whether the rows leave no freedom: the end of a projected run is the same from any start.
    - `alike`: gains per row of those given, such that a motion stays what it is.
    """

    parameters: dict[str, float]
    start: dict[str, Any]
    build: Callable[[Mapping[str, Any], Mapping[str, Any]], tuple[uk.AbstractSystem, jax.Array, jax.Array]]
    rows: int
    dependent: bool = False
    singular: bool = False
    determined: bool = False
    alike: Callable[[jax.Array], jax.Array] = lambda gains: gains


def _moved(model: Callable[..., uk.Problem], **options: Any) -> Callable:
    """The model's own start, moved by q0 and v0, in general off the constraints."""

    def build(parameters: Mapping[str, Any], start: Mapping[str, Any]) -> tuple:
        problem = model(**parameters, **options)
        return problem.system, problem.q0 + start["q0"], problem.v0 + start["v0"]

    return build


def _parallelogram(parameters: Mapping[str, Any], start: Mapping[str, Any]) -> tuple:
    """Links of another length at the start keep the rank; other ways off the constraints raise it."""
    system = uk.models.parallelogram(**parameters).system
    stretched = eqx.tree_at(lambda s: s.length, system, parameters["length"] * start["stretch"])
    return system, *stretched.state(start["angle"], start["rate"])


def _three_links_alike(gains: jax.Array) -> jax.Array:
    """The same gains at each of the three links, which so stay parallel."""
    each = gains.reshape(2, 3, 2)
    return jnp.broadcast_to(jnp.mean(each, axis=1, keepdims=True), each.shape).ravel()


def _rods(parameters: Mapping[str, Any], start: Mapping[str, Any]) -> tuple:
    a, s = (f(jnp.asarray([0.5, -0.5])) for f in (jnp.cos, jnp.sin))
    q0 = parameters["length"] * jnp.stack([s, -a], axis=1).ravel()
    return Rods(**parameters), q0 + start["q0"], start["v0"]


def _off(n_q: int, n: int, size: float = 1.0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n_q)
    return {"q0": size * 0.01 * rng.normal(size=n_q), "v0": size * 0.1 * rng.normal(size=n)}


MODELS = {
    "pendulum": Model(
        {"mass": 2.0, "length": 1.2, "gravity": 9.81}, _off(2, 2), _moved(uk.models.pendulum, rate=1.0), 1
    ),
    "parallelogram": Model(
        {"length": 1.0, "mass": 1.0, "coupler_length": 2.0, "coupler_mass": 2.0, "gravity": 9.81},
        {"angle": 1.0, "rate": 1.0, "stretch": 1.01},
        _parallelogram, 12, dependent=True, alike=_three_links_alike,
    ),
    "scara": Model(
        {"m1": 20.0, "m4": 0.5, "l1": 0.2, "l2": 0.25, "Iz3": 0.02, "radius": 0.05, "climb": 0.02},
        _off(4, 4, 0.3), _moved(uk.models.scara), 4, determined=True,
    ),
    "spinning_top": Model(
        {"mass": 1.0, "length": 1.0, "I1": 1.25, "I3": 0.5, "gravity": 9.81},
        _off(4, 4), _moved(uk.models.spinning_top, spin=3.0, formulation="singular mass"), 1, singular=True,
    ),
    "slider_crank": Model(
        {"crank_length": 0.5, "rod_length": 1.0, "rod_mass": 2.0, "slider_mass": 1.0},
        _off(9, 9), _moved(uk.models.slider_crank, rate=2.0), 10, dependent=True,
    ),
    "rolling_disk": Model(
        {"mass": 1.0, "radius": 0.5, "slope": 0.5, "gravity": 9.81},
        _off(4, 4), _moved(uk.models.rolling_disk), 2,
    ),
    "doubled rods": Model(
        {"mass": 1.0, "length": 1.0, "stiffness": 5.0}, _off(4, 4), _rods, 4, dependent=True
    ),
}  # fmt: skip
