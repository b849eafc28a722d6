"""Trees link by link in scalar code: the same acceleration, in proportion to their size; and joints of the user's own."""

import functools
from typing import ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import central, state

import ukjax as uk
from ukjax.mechanisms import (
    GROUND,
    AbstractJoint,
    Body,
    Distance,
    Freedom,
    Gravity,
    PlanarBody,
    Revolute,
    Spherical,
    assemble,
    tree,
)

# Joints of one's own


@final
class Helix(AbstractJoint):
    """A screw about the vertical through `point`, which rises by `rise` for each radian."""

    name: str = eqx.field(static=True)
    parent: str = eqx.field(static=True)
    child: str = eqx.field(static=True)
    point: jax.Array
    rise: jax.Array
    turns: ClassVar[bool] = True

    def freedoms(self, child):
        return [Freedom.turn(self.point, jnp.array([0.0, 0.0, 1.0]), advance=self.rise)]

    def rows(self, t, *placements):
        parent, child = placements
        offset = parent.back(child.point(self.point) - parent.point(self.point))
        R = jnp.stack([parent.back(child.vector(axis)) for axis in jnp.eye(3)], axis=1)
        angle = jnp.arctan2(R[1, 0], R[0, 0])
        return jnp.stack([offset[0], offset[1], R[2, 0], R[2, 1], offset[2] - self.rise * angle])


@final
class Telescope(AbstractJoint):
    """In the plane: the child is turned about a point of the parent, and slides along its own first axis."""

    name: str = eqx.field(static=True)
    parent: str = eqx.field(static=True)
    child: str = eqx.field(static=True)
    point: jax.Array
    turns: ClassVar[bool] = True

    def freedoms(self, child):
        return [Freedom.turn(self.point), Freedom.slide(self.point, jnp.array([1.0, 0.0]))]

    def rows(self, t, *placements):
        parent, child = placements
        return child.back(child.point(self.point) - parent.point(self.point))[1:]


_accelerated = eqx.filter_jit(uk.UdwadiaKalaba().acceleration)


def test_a_screw_of_ones_own_falls_as_by_hand():
    """theta'' = -m g h / (I + m h^2), in a tree and in absolute coordinates."""
    mass, about, rise, g = 1.7, 0.3, 0.2, 9.81
    expected = -mass * g * rise / (about + mass * rise**2)
    bodies = [Body("nut", mass, (0.1, 0.2, 0.5), (0.2, 0.25, about))]
    joints = [Helix("thread", GROUND, "nut", jnp.array([0.1, 0.2, 0.0]), jnp.asarray(rise))]
    small, large = tree(bodies, joints, [Gravity()]), assemble(bodies, joints, [Gravity()])
    turned, rate = 0.8, 1.3
    found = _accelerated(small, *state(0.0, [turned], [rate]))
    np.testing.assert_allclose(found.a, [expected], rtol=1e-13)
    np.testing.assert_allclose(uk.lanes(small).one(*state(0.0, [turned], [rate])), [expected])

    q = [0.1, 0.2, 0.5 + rise * turned, np.cos(turned / 2), 0.0, 0.0, np.sin(turned / 2)]
    found = _accelerated(large, *state(0.0, q, [0.0, 0.0, rise * rate, 0.0, 0.0, rate]))
    np.testing.assert_allclose(found.a, [0.0, 0.0, rise * expected, 0.0, 0.0, expected], atol=1e-12)
    assert found.rank == 5


def test_a_telescope_of_ones_own_moves_as_polar_coordinates_say():
    """r'' = r theta'^2 and (I + m r^2) theta'' = -2 m r r' theta', without gravity."""
    mass, about, r, (turned, rate, speed) = 1.3, 0.4, 0.9, (0.7, 1.1, -0.6)
    bodies = [PlanarBody("bead", mass, (r, 0.0), about)]
    joints = [Telescope("arm", GROUND, "bead", jnp.zeros(2))]
    small, large = tree(bodies, joints), assemble(bodies, joints)
    slid = 0.25
    r += slid
    spin, stretch = -2 * mass * r * speed * rate / (about + mass * r**2), r * rate**2
    now = state(0.0, [turned, slid], [rate, speed])
    np.testing.assert_allclose(_accelerated(small, *now).a, [spin, stretch], rtol=1e-13)
    np.testing.assert_allclose(uk.lanes(small).one(*now), [spin, stretch], rtol=1e-13)

    along, across = np.array([np.cos(turned), np.sin(turned)]), np.array([-np.sin(turned), np.cos(turned)])
    there = state(0.0, [*r * along, turned], [*(speed * along + r * rate * across), rate])
    expected = (stretch - r * rate**2) * along + (r * spin + 2 * speed * rate) * across
    np.testing.assert_allclose(_accelerated(large, *there).a, [*expected, spin], atol=1e-12)


def test_freedoms_that_are_not_independent_are_refused():
    """Two turns about the same axis: the pivot of one of them is rounding."""

    @final
    class Twice(AbstractJoint):
        name: str = eqx.field(static=True)
        parent: str = eqx.field(static=True)
        child: str = eqx.field(static=True)
        point: jax.Array
        axis: jax.Array
        turns: ClassVar[bool] = True

        def freedoms(self, child):
            return [Freedom.turn(self.point, self.axis, label) for label in ("one", "two")]

    axis = np.array([0.3, -0.5, 0.8])
    joint = Twice("twice", GROUND, "b", jnp.zeros(3), jnp.asarray(axis / np.linalg.norm(axis)))
    system = tree([Body("b", 1.0, (0.3, 0.2, 0.1), (0.2, 0.25, 0.3))], [joint], [Gravity()])
    assert np.all(np.isnan(uk.lanes(system).one(*state(0.0, [0.3, 0.2], [0.1, 0.4]))))
    with pytest.raises(uk.InputError, match="not positive definite"):
        uk.simulate(system, jnp.array([0.3, 0.2]), jnp.array([0.1, 0.4]), t1=0.1)


# Scalar code, link by link


def _chain(n: int, mass: float | jax.Array = 1.0, closed: str = ""):
    """Hinges about axes in all directions; the end held by a ball or by a rod."""
    rng = np.random.default_rng(0)
    axes = rng.normal(size=(n, 3))
    points = np.cumsum(0.3 * rng.normal(size=(n + 1, 3)) + [1.0, 0.0, 0.0], axis=0)
    names = [GROUND, *(f"b{i}" for i in range(n))]
    bodies = []
    for i in range(n):
        A = 0.1 * rng.normal(size=(3, 3))
        inertia = np.trace(A @ A.T) * np.eye(3) - A @ A.T
        bodies.append(Body(names[i + 1], mass * (1.0 + 0.1 * i), 0.5 * (points[i] + points[i + 1]), inertia))
    joints = [Revolute(f"j{i}", names[i], names[i + 1], points[i], axes[i]) for i in range(n)]
    loops = {
        "": [],
        "ball": [Spherical("end", GROUND, names[-1], points[n])],
        "rod": [Distance("end", GROUND, names[-1], points[n] + [0.0, 0.0, 2.0], points[n])],
    }
    return tree(bodies, joints, [Gravity((0.0, 0.0, -9.81))], loops=loops[closed])


@pytest.mark.parametrize("closed", [*(pytest.param(x, marks=pytest.mark.slow) for x in ("", "ball")), "rod"])
def test_scalar_code_equals_arrays_and_so_do_its_derivatives(closed):
    """The elimination link by link against a dense mass matrix; derivatives against central differences."""
    rng = np.random.default_rng(1)
    q, v, dq, dv = 0.4 * rng.normal(size=(4, 5))

    def by_arrays(s):
        s = jnp.asarray(s)  # of one type, for one program
        system = _chain(5, 1.0 + 0.3 * s, closed)
        return _accelerated(system, 0.0, jnp.asarray(q + s * dq), jnp.asarray(v + s * dv)).a

    def by_code(s):
        return uk.lanes(_chain(5, 1.0 + 0.3 * s, closed)).one(jnp.asarray(0.0), q + s * dq, v + s * dv)

    at = jnp.asarray(0.0)
    expected, slope = by_arrays(0.0), central(by_arrays)
    found, change = jax.jit(lambda s: jax.jvp(by_code, (s,), (jnp.ones_like(s),)))(at)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11 * np.abs(expected).max())
    np.testing.assert_allclose(change, slope, rtol=0, atol=1e-6 * np.abs(slope).max())
    weights = jnp.asarray(rng.normal(size=5))
    backward = jax.jit(jax.grad(lambda s: weights @ by_code(s)))(at)
    np.testing.assert_allclose(backward, weights @ change, rtol=1e-9)


@functools.cache
def _operations(n: int, closed: str = "") -> int:
    return sum(uk.lanes(_chain(n, closed=closed)).operations(*state(0.0, [0.0] * n, [0.0] * n)).values())


def test_operations_are_in_proportion_to_the_links():
    assert _operations(24) / 24 < 1.3 * _operations(6) / 6


@pytest.mark.slow
def test_operations_of_loops_are_in_proportion_to_the_links():
    few, many = (_operations(n, "ball") - _operations(n) for n in (6, 24))
    assert many / 24 < 1.3 * few / 6
