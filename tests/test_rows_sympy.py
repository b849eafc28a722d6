"""A and b of constrained models against SymPy: constraints written again, differentiated."""

import dataclasses
import itertools
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import sympy as sp

import ukjax as uk
from ukjax import models
from ukjax._misc import _lie

TOLERANCE = 1e-12


@dataclasses.dataclass
class Symbolic:
    """A system and its constraints again, as lists of SymPy expressions in t, q(t), v(t)."""

    system: uk.AbstractSystem
    n: int
    holonomic: Callable = lambda t, q: []
    nonholonomic: Callable = lambda t, q, v: []
    kinematics: Callable = lambda q, v: v
    nq: int = 0


def _symbolic_rows(case: Symbolic) -> Callable:
    """(t, q, v) -> A, b: differentiate in time, put q' = N v, and collect what multiplies v'."""
    t = sp.Symbol("t")
    q = [sp.Function(f"q{i}")(t) for i in range(case.nq or case.n)]
    v = [sp.Function(f"v{i}")(t) for i in range(case.n)]
    rates = dict(zip([x.diff(t) for x in q], case.kinematics(q, v), strict=True))
    psi = [sp.diff(phi, t).subs(rates) for phi in case.holonomic(t, q)]
    psi += case.nonholonomic(t, q, v)
    a = sp.symbols(f"a:{case.n}")
    accelerations = dict(zip([x.diff(t) for x in v], a, strict=True))
    rows = [sp.diff(p, t).subs(rates).subs(accelerations) for p in psi]
    plain = sp.symbols(f"x:{len(q) + len(v)}")
    names = dict(zip(v + q, plain, strict=True))
    rows = [sp.expand(row.subs(names), trig=False) for row in rows]
    A = sp.Matrix([[sp.diff(row, x) for x in a] for row in rows])
    b = sp.Matrix([-row.subs(dict.fromkeys(a, 0)) for row in rows])
    evaluate = sp.lambdify((t, plain), [A, b], "numpy")

    def numeric(t, q, v):
        A, b = evaluate(t, np.concatenate([v, q]))
        return np.asarray(A, float), np.asarray(b, float)[:, 0]

    return numeric


def _parallelogram(t, q):
    def end(body, offset):
        x, y, theta = q[3 * body : 3 * body + 3]
        return x + offset * sp.cos(theta), y + offset * sp.sin(theta)

    half = sp.Rational(1, 2)
    rows = []
    for i in range(3):
        x, y = end(i, -half)
        rows += [x - i, y]
    for i in range(3):
        (x, y), (X, Y) = end(i, half), end(3, i - 1)
        rows += [x - X, y - Y]
    return rows


def _slider_crank(t, q):
    x1, y1, w1, x2, y2, w2, x3, y3, w3 = q
    crank, rod = sp.Rational(1, 4), sp.Rational(1, 2)
    wrist = [x2 + rod * sp.cos(w2) - x3, y2 + rod * sp.sin(w2) - y3]
    return [
        x1 - crank * sp.cos(w1),
        y1 - crank * sp.sin(w1),
        x1 + crank * sp.cos(w1) - x2 + rod * sp.cos(w2),
        y1 + crank * sp.sin(w1) - y2 + rod * sp.sin(w2),
        *wrist,
        *wrist,
        y3,
        w3,
    ]


def _scara(t, q):
    w, l1, l2 = sp.Rational(2, 5) * sp.pi, sp.Rational(1, 5), sp.Rational(1, 4)
    q1, q2, q3, q4 = q
    return [
        -l1 * sp.sin(q1) - l2 * sp.sin(q1 + q2) - sp.sin(w * t) / 20,
        l1 * sp.cos(q1) + l2 * sp.cos(q1 + q2) - sp.Rational(35, 100) - sp.cos(w * t) / 20,
        q1 + q2 + q3,
        q4 - t / 50,
    ]


def _n_pendulum(t, q):
    ends = [(0, 0), *zip(q[::2], q[1::2], strict=True)]
    return [((x - u) ** 2 + (y - w) ** 2 - 1) / 2 for (u, w), (x, y) in itertools.pairwise(ends)]


def _sideslip(q, v):
    return v[1] * sp.cos(q[2]) - v[0] * sp.sin(q[2])


def _rolling(t, q, v):
    return [v[0] * sp.cos(q[2]) + v[1] * sp.sin(q[2]) - v[3] / 2, _sideslip(q, v)]


def _rheonomic() -> uk.AbstractSystem:
    """Time in everything, and a row that is not linear in the velocities."""

    def bead(t, q):
        return q[0] ** 2 * jnp.sin(3.0 * t) + jnp.exp(q[1] * t) - q[2]

    def speed(t, q, v):
        return jnp.dot(v, v) * jnp.cos(q[0] + t) - t**3 * v[1] * q[2]

    constraints = (uk.Holonomic(bead), uk.Nonholonomic(speed))
    return uk.System(jnp.eye(3), jnp.zeros(3), constraints)


def _tilted_body() -> uk.AbstractSystem:
    """A quaternion turned by body angular velocities, under one row of either kind."""

    def height(t, q):
        return (q[0] ** 2 - q[1] ** 2 - q[2] ** 2 + q[3] ** 2) - jnp.sin(t)

    def slip(t, q, v):
        return v[2] - q[1] * t * v[0]

    return uk.System(
        jnp.eye(3),
        jnp.zeros(3),
        (uk.Holonomic(height), uk.Nonholonomic(slip)),
        kinematics=lambda t, q, v: _lie.quaternion_rate(q, v),
    )


def _quaternion_rate(q, w):
    s, x, y, z = q
    return [
        -(x * w[0] + y * w[1] + z * w[2]) / 2,
        (s * w[0] + y * w[2] - z * w[1]) / 2,
        (s * w[1] + z * w[0] - x * w[2]) / 2,
        (s * w[2] + x * w[1] - y * w[0]) / 2,
    ]


CASES = {
    "scara": lambda: Symbolic(models.scara().system, 4, _scara),
    "parallelogram": lambda: Symbolic(models.parallelogram().system, 12, _parallelogram),
    "slider_crank": lambda: Symbolic(models.slider_crank().system, 9, _slider_crank),
    "pendulum": lambda: Symbolic(models.pendulum().system, 2, _n_pendulum),
    "n_pendulum": lambda: Symbolic(models.n_pendulum(4).system, 8, _n_pendulum),
    "spherical_pendulum": lambda: Symbolic(
        models.spherical_pendulum(length=0.5).system,
        3,
        lambda t, q: [sum(x**2 for x in q) - sp.Rational(1, 4)],
    ),
    "knife_edge": lambda: Symbolic(
        models.knife_edge().system, 3, nonholonomic=lambda t, q, v: [_sideslip(q, v)]
    ),
    "rolling_disk": lambda: Symbolic(models.rolling_disk().system, 4, nonholonomic=_rolling),
    "spinning_top": lambda: Symbolic(
        models.spinning_top(formulation="singular mass").system,
        4,
        lambda t, q: [(sum(x**2 for x in q) - 1) / 2],
    ),
    "rheonomic": lambda: Symbolic(
        _rheonomic(),
        3,
        lambda t, q: [q[0] ** 2 * sp.sin(3 * t) + sp.exp(q[1] * t) - q[2]],
        lambda t, q, v: [sum(x**2 for x in v) * sp.cos(q[0] + t) - t**3 * v[1] * q[2]],
    ),
    "quasi-velocities": lambda: Symbolic(
        _tilted_body(),
        3,
        lambda t, q: [q[0] ** 2 - q[1] ** 2 - q[2] ** 2 + q[3] ** 2 - sp.sin(t)],
        lambda t, q, v: [v[2] - q[1] * t * v[0]],
        _quaternion_rate,
        4,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_equal_symbolic_ones(name):
    case = CASES[name]()
    symbolic = _symbolic_rows(case)
    rows = eqx.filter_jit(uk.constraint_rows)
    rng = np.random.default_rng(1)
    for _ in range(5):
        t, q, v = rng.uniform(0, 3), rng.normal(size=case.nq or case.n), rng.normal(size=case.n)
        A, b = symbolic(t, q, v)
        computed = rows(case.system, jnp.asarray(t), jnp.asarray(q), jnp.asarray(v))
        assert computed.A.shape == A.shape
        np.testing.assert_allclose(computed.A, A, rtol=TOLERANCE, atol=TOLERANCE)
        np.testing.assert_allclose(computed.b, b, rtol=TOLERANCE, atol=TOLERANCE)
