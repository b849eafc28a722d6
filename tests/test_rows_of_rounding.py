"""Rows that are zero but for rounding ask for nothing, alone or beside others."""

import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax import mechanisms as um

pytestmark = pytest.mark.usefixtures("optimized")  # which changes what is rounding

ROD = uk.Holonomic(lambda t, q: q @ q - 1.0, name="rod")
ALWAYS = uk.Holonomic(lambda t, q: jnp.sin(q[0]) ** 2 + jnp.cos(q[0]) ** 2 - 1.0, name="always")


@pytest.mark.parametrize("rows", [[ROD, ALWAYS], [ALWAYS, ROD]])
@pytest.mark.parametrize("stabilizer", [uk.Projection(), uk.Baumgarte(5.0, 6.0)])
def test_beside_another(rows, stabilizer):
    start, options = (
        (np.array([0.0, -1.0]), np.array([1.0, 0.0])),
        {"t1": 2.0, "ts": 2, "stabilizer": stabilizer},
    )
    runs = [
        uk.simulate(uk.System(np.eye(2), np.array([0, -9.81]), x), *start, **options) for x in (rows, [ROD])
    ]
    assert runs[0].ok, runs[0].message
    np.testing.assert_allclose(runs[0].q[-1], runs[1].q[-1], atol=1e-7)


def test_alone():
    system = uk.System(np.eye(2), lambda t, q, v: -q, [ALWAYS])
    run = uk.simulate(system, [0.5, -1.0], [1.0, 0.0], t1=2.0, ts=2)
    assert run.ok, run.message
    np.testing.assert_allclose(
        run.q[-1], np.cos(2.0) * np.array([0.5, -1.0]) + np.sin(2.0) * np.array([1.0, 0.0]), atol=1e-7
    )


def _four_bar(R):
    """A plane linkage in a plane of its own; out of it the loop's rows are rounding."""
    A, B, C, D = (R @ np.array(p) for p in ((0, 0, 0.0), (0, 1, 0.0), (1.5, 1.5, 0.0), (1.5, 0, 0.0)))
    axis, radius = R[:, 2], 0.05
    ends = {"crank": (A, B, 1.0), "coupler": (B, C, 2.0), "rocker": (D, C, 1.0)}
    bodies = [um.rod(name, *x, radius=radius) for name, x in ends.items()]
    open_ones = [
        um.Revolute("A", "ground", "crank", A, axis),
        um.Revolute("B", "crank", "coupler", B, axis),
        um.Revolute("D", "ground", "rocker", D, axis),
    ]
    loop = um.Revolute("C", "coupler", "rocker", C, axis)
    tree = um.tree(bodies, open_ones, [um.Gravity(tuple(R @ np.array([0, -9.81, 0])))], loops=[loop])
    return um.problem(tree, rates={"A": 3.0}, t1=2.0)


@pytest.mark.slow
def test_of_a_linkage_in_a_plane_of_its_own():
    c, s = np.cos(0.4), np.sin(0.4)
    turned = np.array([[1, 0, 0], [0, c, -s], [0, s, c]])
    runs = [uk.simulate(_four_bar(R), ts=2) for R in (np.eye(3), turned)]
    assert runs[1].ok, runs[1].message
    np.testing.assert_allclose(runs[1].q[-1], runs[0].q[-1], atol=1e-6)


def test_of_a_quaternion():
    """Moved by angular velocities it keeps its norm."""
    moments = np.array([1.0, 2.0, 3.0])

    def rate(t, q, w):
        return 0.5 * jnp.array([
            -q[1] * w[0] - q[2] * w[1] - q[3] * w[2],
            q[0] * w[0] + q[2] * w[2] - q[3] * w[1],
            q[0] * w[1] - q[1] * w[2] + q[3] * w[0],
            q[0] * w[2] + q[1] * w[1] - q[2] * w[0],
        ])  # fmt: skip

    torque, start = lambda t, q, w: -jnp.cross(w, moments * w), ([1.0, 0, 0, 0], np.array([0.01, 2.0, 0.02]))
    unit = uk.Holonomic(lambda t, q: q @ q - 1.0)
    systems = [uk.System(np.diag(moments), torque, rows, kinematics=rate) for rows in ([unit], [])]
    runs = [uk.simulate(system, *start, t1=20.0, ts=2) for system in systems]
    assert runs[0].ok, runs[0].message
    np.testing.assert_allclose(runs[0].q[-1], runs[1].q[-1], atol=1e-6)


@pytest.mark.parametrize("name", ["knife_edge", pytest.param("rolling_disk", marks=pytest.mark.slow)])
def test_nonholonomic_rows_alone_are_projected_by_scalar_code(name):
    run = uk.simulate(uk.models.get(name), t1=0.5, ts=3)
    assert "arrays" not in run.computed_by
    expected = uk.simulate(uk.models.get(name), t1=0.5, ts=3, formula=uk.UdwadiaKalaba(uk.SVD()))
    np.testing.assert_allclose(run.q[-1], expected.q[-1], atol=1e-9)
