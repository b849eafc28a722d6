"""Impulses on contacts given by their rows: laws, derivatives, and what goes wrong."""

import jax
import jax.numpy as jnp
import numpy as np

from ukjax._contact._solve import solution_of
from ukjax._formula._contact_problem import ContactData, flatten_problem

LAYOUT = ((True, 2), (True, 0), (False, 1), (True, 2), (True, 1), (True, 2))
STARTS, FREEDOMS, MEMBERS = np.array([0, 3, 4, 5, 8, 10]), 7, 21
ROWS = 13


def problems(members=MEMBERS):
    """Random ones with one contact without friction, and some that give way."""
    rng = np.random.default_rng(0)
    J, A = rng.normal(size=(members, ROWS, FREEDOMS)), rng.normal(size=(members, FREEDOMS, FREEDOMS))
    W = A @ np.swapaxes(A, 1, 2) + 0.1 * np.eye(FREEDOMS)
    mu = rng.uniform(0.1, 0.4, (members, len(LAYOUT))) * (np.array(LAYOUT)[:, 0] & (np.arange(6) != 3))
    c = np.where(np.array(LAYOUT)[:, 0], 0.0, 0.3) * np.ones((members, 1))
    v, u = rng.normal(size=(members, FREEDOMS)), 0.1 * rng.normal(size=(members, ROWS))
    soft = np.zeros((members, ROWS))
    soft[:, [start for start, (normal, _) in zip(STARTS, LAYOUT, strict=True) if normal][::2]] = 2.0
    return [jnp.asarray(x) for x in (J, W, v, u, mu, c, soft)]


def solved(J, W, v, u, mu, c, soft, layout=LAYOUT):
    """The solution, and what its impulses change."""
    G = J @ W @ J.T + jnp.diag(soft)
    found = solution_of(flatten_problem(ContactData(0.5 * (G + G.T), u + J @ v, mu, c)), layout)
    return found, W @ J.T @ found.p


def test_laws_hold():
    given = problems()
    found, change = jax.jit(jax.vmap(solved))(*given)
    p, (J, _, v, u, mu, c, soft) = np.asarray(found.p), map(np.asarray, given)
    after = np.einsum("bij,bj->bi", J, v + change) + soft * p + u
    for k, (start, (normal, tangents)) in enumerate(zip(STARTS, LAYOUT, strict=True)):
        size, bound = normal + tangents, c[:, k]
        if normal:
            np.testing.assert_allclose(np.minimum(p[:, start], after[:, start]), 0, atol=1e-10)
            bound = bound + mu[:, k] * p[:, start]
        force, slip = (x[:, start + normal : start + size] for x in (p, after))
        length, speed = np.linalg.norm(force, axis=1), np.linalg.norm(slip, axis=1)
        assert np.all(length <= bound + 1e-10)
        np.testing.assert_allclose((force * slip).sum(1), -bound * speed, atol=1e-10)


def test_contacts_of_a_chain_of_bodies_obey_the_laws():
    """Each body of three freedoms touches the next, and some touch the floor: most contacts do not act on each other."""
    rng, bodies, layout = np.random.default_rng(1), 9, ((True, 2),) * 17
    ends = [(k, k + 1) for k in range(bodies - 1)] + [(k, k) for k in range(bodies)]
    n, m = 3 * bodies, 3 * len(layout)
    order = rng.permutation(len(ends))
    J, W = np.zeros((m, n)), np.zeros((n, n))
    for k, i in enumerate(order):
        for b in set(ends[i]):
            J[3 * k : 3 * k + 3, 3 * b : 3 * b + 3] = rng.normal(size=(3, 3))
    for b in range(bodies):
        A = rng.normal(size=(3, 3))
        W[3 * b : 3 * b + 3, 3 * b : 3 * b + 3] = A @ A.T + np.eye(3)
    v, mu, still = rng.normal(size=n), np.full(len(layout), 0.3), np.zeros(m)
    given = J, W, v, still, mu, np.zeros(len(layout)), still
    p = np.asarray(jax.jit(lambda *x: solved(*x, layout)[0].p)(*map(jnp.asarray, given)))
    after = J @ (v + W @ J.T @ p)
    np.testing.assert_allclose(np.minimum(p[0::3], after[0::3]), 0, atol=1e-10)
    force, slip = p.reshape(-1, 3)[:, 1:], after.reshape(-1, 3)[:, 1:]
    bound = mu * p[0::3]
    assert np.sum(bound > 0) > 3
    assert np.all(np.linalg.norm(force, axis=1) <= bound + 1e-10)
    np.testing.assert_allclose((force * slip).sum(1), -bound * np.linalg.norm(slip, axis=1), atol=1e-10)


def test_alone_as_in_a_batch():
    """To the last bit: members are solved one after the other."""
    given = problems(3)
    together = jax.jit(jax.vmap(solved))(*given)
    alone = [jax.jit(solved)(*(x[i] for x in given)) for i in range(3)]
    jax.tree.map(lambda x, *each: np.testing.assert_array_equal(x, np.stack(each)), together, *alone)


def test_derivatives_against_differences():
    given = [x[:6] for x in problems()]
    rng = np.random.default_rng(1)
    direction = [rng.normal(size=x.shape) * (np.asarray(x) != 0) for x in given]
    direction[1] = direction[1] + np.swapaxes(direction[1], 1, 2)
    direction = [jnp.asarray(x) for x in direction]
    run = jax.jit(jax.vmap(lambda *x: solved(*x)[1]))
    moved = lambda s: np.asarray(run(*(x + s * d for x, d in zip(given, direction, strict=True))))
    slope = np.asarray(jax.jit(lambda *x: jax.jvp(run, x, tuple(direction))[1])(*given))
    differences = (8 * (moved(1e-6) - moved(-1e-6)) - (moved(2e-6) - moved(-2e-6))) / 12e-6
    np.testing.assert_allclose(slope, differences, rtol=1e-6, atol=1e-6)
    pulled = jax.jit(lambda *x: jax.vjp(run, *x)[1](jnp.ones_like(slope)))(*given)
    np.testing.assert_allclose(
        sum(np.vdot(x, d) for x, d in zip(pulled, direction, strict=True)), slope.sum()
    )


def test_what_is_not_a_number_is_not_iterated_on():
    """The other members of a batch are solved."""
    J, W, v, *others = problems(4)
    found = jax.jit(jax.vmap(solved))(J, W, v.at[2].set(jnp.nan), *others)[0]
    assert found.steps[2] == 0
    assert np.all(np.delete(np.asarray(found.residual), 2) < 1e-11)
