"""What `uk.check` says of a system, against numpy on A, b and M, and against how the system was built."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from helpers import Rows, state

import ukjax as uk


def _given(M, A, b, *, names=None):
    """M a = 0 with rows as they stand, each a constraint of its own name."""
    A, b = np.asarray(A, float), np.asarray(b, float)
    names = names or [f"row {i}" for i in range(len(b))]
    rows = [
        uk.AccelerationConstraint(Rows(jnp.asarray(A[i : i + 1]), jnp.asarray(b[i : i + 1])), name=name)
        for i, name in enumerate(names)
    ]
    return uk.System(np.asarray(M, float), np.zeros(A.shape[1]), rows)


def _check(system, **options):
    n = system.mass_matrix_.shape[0]
    return uk.check(system, 0.0, np.zeros(n), np.zeros(n), **options)


def test_parallelogram():
    """Twelve rows of rank eleven: all of them in one dependency but those along x or y it does not touch."""
    problem = uk.models.parallelogram()
    report = uk.check(problem)
    A = np.asarray(uk.constraint_rows(problem.system, *state(0.0, problem.q0, problem.v0)).A)
    unit = A / np.linalg.norm(A, axis=1, keepdims=True)
    np.testing.assert_allclose(report.singular_values, np.linalg.svd(unit, compute_uv=False), atol=1e-14)
    assert (report.rank, report.n, report.degrees_of_freedom) == (11, 12, 1)
    assert report.mass_rank == 12
    assert report.unique_acceleration
    assert report.ok
    assert not report.inconsistent
    dependency = scipy.linalg.null_space(A.T, rcond=1e-10)[:, 0]
    touched = {x for x, d in zip(report.rows, dependency, strict=True) if abs(d) > 1e-9}
    assert [set(group) for group in report.redundant] == [touched]
    assert set(report.unique_multipliers) == set(report.rows) - touched
    text = str(report)
    for words in (
        "12 constraint rows of rank 11",
        "1 degree of freedom",
        "Redundant: ",
        "positive definite",
    ):
        assert words in text
    assert all(name in text for name in touched)
    assert "Violated" not in text
    assert "Inconsistent" not in text


def test_flat_parallelogram_has_two_degrees_of_freedom():
    report = uk.check(uk.models.parallelogram(angle=0.0))
    assert (report.rank, report.degrees_of_freedom) == (10, 2)


def test_slider_crank_names_its_doubled_bearing():
    problem = uk.models.slider_crank()
    report = uk.check(problem)
    pairs = {frozenset((f"wrist pin[{i}]", f"wrist pin, second bearing[{i}]")) for i in range(2)}
    assert {frozenset(group) for group in report.redundant} == pairs
    assert (report.rank, report.degrees_of_freedom) == (8, 1)
    assert set(report.unique_multipliers) == set(report.rows) - frozenset().union(*pairs)
    assert report.ok


def test_unique_multipliers_against_the_null_space():
    """Row i's multiplier is unique iff no dependency touches row i: numpy's null space of A^T."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        m, n, rank = rng.integers(1, 7), rng.integers(1, 7), rng.integers(0, 7)
        A = np.zeros((m, n))
        rank = min(m, n, rank)
        A[:rank] = rng.normal(size=(rank, n))
        for i in range(rank, m):  # each depends on at most two rows
            chosen = rng.integers(0, max(rank, 1), size=2)
            A[i] = rng.uniform(0.5, 2.0, size=2) @ A[chosen] if rank else 0
        A = A[rng.permutation(m)]
        report = _check(_given(np.eye(n), A, A @ rng.normal(size=n)))
        dependencies = scipy.linalg.null_space(A.T, rcond=1e-10)
        free = np.abs(dependencies).max(axis=1, initial=0) < 1e-9
        assert report.rank == np.linalg.matrix_rank(A)
        assert report.unique_multipliers == tuple(x for x, y in zip(report.rows, free, strict=True) if y)
        assert {x for group in report.redundant for x in group} == set(report.rows) - set(
            report.unique_multipliers
        )
        assert not report.inconsistent


def test_dependencies_through_a_short_lever_are_seen():
    """Row 2 = row 0 + 0.02 row 1: no single multiplier is unique, that of row 1 neither."""
    A = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.02, 0.0], [0.0, 0.0, 1.0]]
    report = _check(_given(np.eye(3), A, np.zeros(4)))
    assert report.redundant == (("row 0", "row 1", "row 2"),)
    assert report.unique_multipliers == ("row 3",)


def test_inconsistent_rows_are_named_with_their_residual():
    """Two rows ask the same for different values: the best a leaves half of the gap to each."""
    A, b = [[1.0, 2.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 1.0]], [1.0, 3.0, 5.0]
    report = _check(_given(np.eye(3), A, b, names=["first", "second", "apart"]))
    a = np.linalg.lstsq(A, b)[0]
    assert set(report.inconsistent) == {"first", "second"}
    for name, residual in zip(("first", "second"), (np.asarray(A) @ a - b)[:2], strict=True):
        np.testing.assert_allclose(report.inconsistent[name], residual, atol=1e-12)
    assert report.redundant == (("first", "second"),)
    assert report.unique_multipliers == ("apart",)
    assert not report.ok
    assert "Inconsistent: first cannot be satisfied (residual 1.0e+00)" in str(report)


def test_lambdas_are_told_apart_by_kind_and_number():
    class Own(uk.AbstractSystem):
        constraints = (
            uk.Holonomic(lambda t, q: q[0] - 1.0),
            uk.Nonholonomic(lambda t, q, v: v[1]),
            uk.Holonomic(lambda t, q: 2 * q[0] - 2.0),
            uk.Holonomic(lambda t, q: q[2:], name="named"),
            uk.AccelerationConstraint(lambda t, q, v: (jnp.eye(4)[1:3], jnp.zeros(2))),
        )

        def mass_matrix(self, t, q):
            return jnp.eye(4)

        def force(self, t, q, v):
            return jnp.zeros(4)

    own = Own()
    names = ("holonomic 1", "nonholonomic 1", "holonomic 2", "named[0]", "named[1]")
    names += ("acceleration 1[0]", "acceleration 1[1]")
    for system in (own, uk.System(jnp.eye(4), jnp.zeros(4), own.constraints)):
        state = 0.0, jnp.asarray([1.0, 0.0, 0.0, 0.0]), jnp.zeros(4)
        assert uk.constraint_rows(system, *state).names == names
        assert "Redundant: holonomic 1, holonomic 2 depend on each other." in str(uk.check(system, *state))
    rods = [uk.Holonomic(lambda t, q, i=i: q[i] - 1.0, name="rod") for i in range(2)]
    assert uk.constraint_rows(uk.System(jnp.eye(4), jnp.zeros(4), rods), *state).names == ("rod", "rod 2")
    wrong = uk.System(jnp.eye(1), jnp.zeros(1), [uk.Holonomic(lambda t, q: jnp.eye(2))])
    with pytest.raises(uk.InputError, match="constraint 'holonomic 1' returned shape"):
        uk.simulate(wrong, [0.0], [0.0], t1=1.0)
    jerk = uk.AnyOrderSystem(3, jnp.eye(2), jnp.zeros(2), [uk.OfOrder(2, lambda t, x, u, a: a[0])])
    assert jerk.constraints[0].name.startswith("constraint 1")


def test_incompatible_rods():
    """Of two lengths between the same points: redundant rows, violated, and no consistent state."""
    rods = [
        uk.Holonomic(lambda t, q: jnp.dot(q, q) - 1.0, name="short rod"),
        uk.Holonomic(lambda t, q: jnp.dot(q, q) - 4.0, name="long rod"),
    ]
    report = uk.check(uk.System(jnp.eye(2), jnp.zeros(2), rods), 0.0, [1.0, 0.0], [0.0, 1.0])
    assert report.redundant == (("short rod", "long rod"),)
    assert report.consistent_state is None
    assert not report.ok
    np.testing.assert_allclose(report.position_error, [0.0, -3.0])
    text = str(report)
    assert "No consistent state was found nearby." in text
    assert "Violated: long rod by -3.000e+00" in text
    assert "Violated: short rod" not in text


def test_singular_mass_matrix():
    """[M; A] decides: the massless direction is held by a row, or it is not."""
    M = np.diag([1.0, 2.0, 0.0])
    held = _check(_given(M, [[0.0, 1.0, 1.0]], [1.0]))
    assert held.mass_rank == 2
    assert held.unique_acceleration
    assert "singular, of rank 2 of 3; the acceleration is unique" in str(held)
    loose = _check(_given(M, [[1.0, 1.0, 0.0]], [1.0]))
    assert not loose.unique_acceleration
    assert not loose.ok
    assert "NOT unique" in str(loose)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e8])
def test_uniqueness_does_not_depend_on_units(scale):
    rng = np.random.default_rng(1)
    for mass_rank, m in ((2, 3), (3, 1), (4, 0), (1, 4), (4, 2)):
        B, A = rng.normal(size=(5, mass_rank)), rng.normal(size=(m, 5))
        report = _check(_given(scale * B @ B.T, A / scale, A @ rng.normal(size=5) / scale))
        assert report.mass_rank == mass_rank
        assert report.unique_acceleration == (mass_rank + m >= 5)
        assert report.rank == m


def test_nearest_consistent_state():
    """For a mass drawn off its circle it is the radial point, and the tangential part of the velocity."""
    problem = uk.models.pendulum()
    q, v = np.array([0.9, -1.2]), np.array([1.0, 2.0])  # |q| = 1.5
    report = uk.check(problem.system, 0.0, q, v)
    u = q / 1.5
    np.testing.assert_allclose(report.position_error, [(1.5**2 - 1) / 2])
    np.testing.assert_allclose(report.velocity_error, [q @ v])
    np.testing.assert_allclose(report.consistent_state[0], u, atol=1e-12)
    np.testing.assert_allclose(report.consistent_state[1], v - (u @ v) * u, atol=1e-12)
    text = str(report)
    assert "Violated: rod by 6.250e-01, its rate by -1.500e+00." in text
    assert "The nearest consistent state is q: x = 0.6, y = -0.8" in text


def test_systems_without_rows():
    report = uk.check(uk.models.spinning_top())
    assert (report.rank, report.degrees_of_freedom, report.rows) == (0, 3, ())
    assert report.ok
    assert "3 velocities, 0 constraint rows of rank 0: 3 degrees of freedom." in str(report)


def test_stabilized_rows_can_be_inconsistent_where_their_own_are_not():
    """Redundant rows whose errors differ ask for different decays."""
    rods = [
        uk.Holonomic(lambda t, q: q[0] - 1.0, name="at 1"),
        uk.Holonomic(lambda t, q: q[0] - 1.5, name="at 1.5"),
    ]
    system = uk.System(jnp.eye(2), jnp.zeros(2), rods)
    assert not uk.check(system, 0.0, np.ones(2), np.zeros(2)).inconsistent
    report = uk.check(system, 0.0, np.ones(2), np.zeros(2), stabilizer=uk.Baumgarte(1.0, 10.0))
    assert set(report.inconsistent) == {"at 1", "at 1.5"}


# One of each kind in the fast suite: few coordinates, dependent rows, velocity rows, a closed tree, quaternions
SHORT = "pendulum", "parallelogram", "rolling_disk", "planar_3rrr", "spinning_top"
MODELS = [name for name in uk.models.MODELS if name != "scara"]  # whose start is not on its path


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SHORT else pytest.mark.slow) for name in MODELS]
)
def test_models_are_sound(name):
    problem = uk.models.get(name)
    report = uk.check(problem)
    assert report.ok, str(report)
    A = np.asarray(jax.jit(lambda p: uk.constraint_rows(p.system, *state(p.t0, p.q0, p.v0)).A)(problem))
    assert report.rank == (np.linalg.matrix_rank(A, tol=1e-8) if A.size else 0)
    for line in str(report).splitlines():
        assert line == line.strip()
        assert line.endswith(".")


def test_rows_too_large_to_be_squared_keep_their_rank():
    A = np.random.default_rng(0).normal(size=(2, 3))
    report = _check(_given(np.eye(3), 1e200 * A, 1e200 * np.ones(2)))
    assert report.rank == 2
    assert not report.inconsistent
    unit = A / np.linalg.norm(A, axis=1, keepdims=True)
    np.testing.assert_allclose(report.singular_values, np.linalg.svd(unit, compute_uv=False), atol=1e-14)


def test_errors_that_are_not_finite_are_refused_by_name():
    """A row whose error is NaN, though A and b are finite."""
    row = uk.Holonomic(lambda t, q: q[0] + jax.lax.stop_gradient(jnp.log(q[1])), name="rooted")
    with pytest.raises(uk.InputError, match="rooted"):
        uk.check(uk.System(jnp.eye(2), jnp.zeros(2), [row]), 0.0, [1.0, -1.0], [0.0, 0.0])


def test_states_as_simulate_takes_them():
    problem = uk.models.pendulum()
    q, v = problem.q0, problem.v0
    system, t = problem.system, 0.0
    ways = [
        uk.check(problem),
        uk.check(system, q, v),
        uk.check(system, q, v, t0=t),
        uk.check(system, q0=q, v0=v),
        uk.check(system, t, q, v),
        uk.check(system, t=t, q=q, v=v),
        uk.check(system, None, list(q), list(v)),
        uk.check(problem, q),
        uk.check(problem, t, q),
    ]
    assert len({str(report) for report in ways}) == 1
    assert "Violated: rod by 5.000e-01" in str(uk.check(problem, jnp.asarray([np.sqrt(2.0), 0.0])))


@pytest.mark.parametrize(
    ("state", "named", "words"),
    [
        (([1.0, 0.0], [0.0, 0.0], 0.0), {}, "check(system, q0, v0, t0=t)"),
        ((0.0, [1.0, 0.0], [0.0, 0.0], 1.0), {}, "got 4"),
        (([1.0, 0.0], [0.0, 0.0]), {"q0": [1.0, 0.0]}, "q is given twice"),
        (([1.0, 0.0], [0.0, 0.0]), {"t": 0.0, "t0": 1.0}, "t is given twice"),
    ],
)
def test_ambiguous_states(state, named, words):
    with pytest.raises(uk.InputError) as error:
        uk.check(uk.models.pendulum().system, *state, **named)
    assert words in str(error.value)


def test_not_within_jit():
    problem = uk.models.pendulum()
    with pytest.raises(uk.InputError, match="outside jit"):
        jax.jit(lambda q: uk.check(problem.system, q, problem.v0).rank)(problem.q0)


def _net():
    """Four triangles of rods around a point, flat."""
    points = np.array([[1.0, 0, 0], [0, 1, 0], [-1, 0, 0], [0, -1, 0], [0, 0, 0]])
    rods = np.array([[0, 1], [1, 2], [2, 3], [3, 0], [0, 4], [1, 4], [2, 4], [3, 4]])
    squares = np.sum(np.diff(points[rods], axis=1)[:, 0] ** 2, axis=1)

    def lengths(t, q):
        x = q.reshape(5, 3)
        return jnp.sum((x[rods[:, 0]] - x[rods[:, 1]]) ** 2, axis=1) - squares

    return uk.System(jnp.eye(15), jnp.zeros(15), [uk.Holonomic(lengths, name="net")]), points.reshape(-1)


def test_a_flat_net_is_told_from_one_that_is_redundant_everywhere():
    """In a plane five points have seven freedoms inside it, so eight rods are one too many; out of it they are not."""
    system, q = _net()
    report = uk.check(system, q, jnp.zeros(15))
    assert (report.rank, report.rank_nearby) == (7, 8)
    assert "Singular position: near by the rows have rank 8, here 7" in str(report)
    rod = uk.Holonomic(lambda t, q: jnp.stack([1.0, 2.0]) * (q[0] ** 2 + q[1] ** 2 - 1.0), name="rod")
    report = uk.check(uk.System(jnp.eye(2), jnp.zeros(2), [rod]), jnp.array([1.0, 0.0]), jnp.zeros(2))
    assert (report.rank, report.rank_nearby) == (1, 1)
    assert "Singular" not in str(report)


@pytest.mark.parametrize("sine", [1e-2, 1e-3, 7e-5])
def test_rows_that_are_nearly_dependent_are_named(sine):
    """Two rods at a small angle, beside a third row: singular values sqrt(1 -+ cos) of two unit rows. The smallest angle
    counts as dependent, but not to rounding."""
    side = np.sqrt(1 - sine**2)
    rows = lambda t, q: jnp.stack([q[0], side * q[0] + sine * q[1], q[2]])
    system = uk.System(jnp.eye(3), jnp.zeros(3), [uk.Holonomic(rows, name="rods")])
    report = uk.check(system, jnp.zeros(3), jnp.zeros(3))
    assert report.rank == (3 if sine > 1e-4 else 2)
    assert report.nearly_dependent == ("rods[0]", "rods[1]")
    np.testing.assert_allclose(report.least_sine, np.sqrt((1 - side) / (1 + side)), rtol=1e-6)
    assert "Nearly dependent: rods[0], rods[1], by a sine of" in str(report)


@pytest.mark.slow
def test_a_flat_net_under_a_taut_thread_is_held_where_its_rows_are_told_apart():
    """The thread between two walls is as long as they are apart, so nothing can sink. To first order it can, by some
    1e-4, where its rows begin to count: steps are refused there without end. At a depth d the thread's three rows, of
    slope d at its ends, are independent by d / sqrt(2), beside the largest singular value."""
    corners = np.array([[0.0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0]])
    pairs = [(i, j) for i in range(4) for j in range(i)]
    rods = lambda t, q: (
        jnp.stack([jnp.sum((q[3 * i : 3 * i + 3] - q[3 * j : 3 * j + 3]) ** 2) for i, j in pairs])
        - jnp.array([np.sum((corners[i] - corners[j]) ** 2) for i, j in pairs])
    )
    ends = jnp.array([[-1.0, 0, 0], [2.0, 0, 0]])
    thread = lambda t, q: jnp.sum((jnp.stack([q[:3], q[6:9]]) - ends) ** 2, axis=1) - 1.0
    constraints = [uk.Holonomic(rods, name="net"), uk.Holonomic(thread, name="thread")]
    system = uk.System(jnp.eye(12), jnp.asarray(np.tile([0, 0, -9.81], 4)), constraints)
    run = uk.simulate(system, corners.reshape(-1), np.zeros(12), t1=0.3, ts=2, max_steps=3000)
    told, depth = run.summary(), -run.q_end[2]
    assert run.result_name == "max_steps_reached"
    assert told["rejected_steps"] > 1500
    assert {"thread[0]", "thread[1]"} <= set(told["nearly_dependent"])
    np.testing.assert_allclose(depth, 1e-4, rtol=0.2)
    largest = np.linalg.norm(uk.check(system, run.q_end, np.zeros(12)).singular_values, np.inf)
    np.testing.assert_allclose(told["least_sine"], depth / np.sqrt(2) / largest, rtol=0.2)
    assert "Nearly dependent: " in run.message


def test_the_summary_of_a_run_from_a_flat_start_names_the_rows():
    system, q = _net()
    push = uk.System(jnp.eye(15), jnp.zeros(15).at[14].set(1.0), system.constraints)
    told = uk.simulate(push, q, jnp.zeros(15), t1=0.5, ts=6).summary()
    assert told["rank_min"] == 7
    assert told["rank_max"] == 8
    assert told["least_sine"] < 1e-6
    assert set(told["nearly_dependent"]) == {f"net[{i}]" for i in range(8)}
    assert uk.simulate(uk.models.pendulum(), t1=0.1, ts=2).summary()["nearly_dependent"] == []
