"""Poisson's law of impact in runs, against momentum and closed forms; contacts of one name; what is refused."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
import ukjax.mechanisms as um
from ukjax._contact._rows import layout_of


def impact(gaps, M, v, e, **more):
    """Velocities after an impact at the start by Poisson's law, and the impulses."""
    walls = uk.Unilateral(gaps, restitution=e, impact="poisson", name="wall", **more)
    system, adjoint = uk.System(M, jnp.zeros(len(v)), [walls]), dfx.ForwardMode()
    run = uk.simulate(system, jnp.zeros(len(v)), v, t1=1e-3, ts=[0.0], adjoint=adjoint)
    return run.v[0], run.contacts.impulse[0]


@pytest.mark.slow
def test_balls_in_a_row():
    """Two of three equal balls touch: compression leaves all at 1/3, and each contact gives back e of its own impulse.

    By Newton's law all would go on at 1/3: the contact between the second and the third was not closing.
    """
    gaps = lambda t, q: jnp.stack([q[1] - q[0], q[2] - q[1]])
    after, impulses = impact(gaps, jnp.eye(3), [1.0, 0.0, 0.0], [0.0, 1.0])
    np.testing.assert_allclose(after, [1 / 6, 1 / 6, 2 / 3], atol=1e-12)
    np.testing.assert_allclose(impulses, [5 / 6, 2 / 3], atol=1e-12)


@pytest.mark.slow
def test_a_disc_that_spins_and_its_derivative():
    """It slides throughout the impact at v_x = -mu v_y (1 + e), or rolls from compression on (Glocker and Pfeiffer)."""
    radius, inertia, v_y, e = 0.1, 0.005, -2.0, 0.5
    M, v = jnp.diag(jnp.array([1.0, 1.0, inertia])), jnp.array([0.0, v_y, 40.0])
    slip = lambda t, q, v: v[0] + radius * v[2]
    rubbed = jax.jit(lambda mu: impact(lambda t, q: q[1], M, v, e, friction=mu, slip=slip)[0])
    (after, slope), rolls = jax.jvp(rubbed, (0.2,), (1.0,)), rubbed(5.0)
    impulse = -0.2 * -v_y * (1 + e)
    np.testing.assert_allclose(after, [impulse, -e * v_y, 40 + radius * impulse / inertia], rtol=1e-12)
    np.testing.assert_allclose(slope[:2], [v_y * (1 + e), 0], atol=1e-9)
    np.testing.assert_allclose(rolls[0] + radius * rolls[2], 0, atol=1e-12)


def test_what_is_refused():
    gap = lambda t, q: q[0]
    with pytest.raises(uk.InputError, match="must be 'newton' or 'poisson'"):
        uk.Unilateral(gap, impact="hertz")
    system = uk.System(jnp.eye(1), jnp.zeros(1), [uk.Unilateral(gap, restitution=0.5, impact="poisson")])
    with pytest.raises(uk.InputError, match="know Newton's law of impact alone"):
        uk.simulate(system, [1.0], [0.0], t1=1.0, dt0=0.1, contact="steps")
    with pytest.raises(uk.InputError, match="the impact of 'stop' must be 'newton' or 'poisson'"):
        um.Limit("hinge", 0.0, 1.0, impact="hertz", name="stop")


def test_mechanisms_bring_their_laws():
    """In the order of their contacts, of which a capsule on a plane has two."""
    body = um.Body("a", 1.0, (0, 0, 0), (0.1, 0.2, 0.25))
    plane, capsule = um.HalfSpace("ground", (0, 0, 0)), um.Capsule("a", (0, -0.5, 0), (0, 0.5, 0), 0.1)
    ball = um.Sphere("a", (0, 0, 0.3), 0.1)
    contacts = [um.Contact(plane, capsule, impact="poisson"), um.Contact(plane, ball, name="ball")]
    system = um.assemble([body], contacts=contacts)
    q = jnp.array([0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    assert layout_of(system, jnp.zeros(()), q, jnp.zeros(6))[0].poisson == (True, True, False)


def test_contacts_of_one_name():
    """Each has its own column, rows and words."""
    walls = [uk.Unilateral(lambda t, q, i=i: q[i], name="wall") for i in range(2)]
    run = uk.simulate(
        uk.System(jnp.eye(2), jnp.zeros(2), walls),
        [1.0, 1.0],
        [-1.0, -2.0],
        t1=1.0,
        dt0=0.25,
        contact="steps",
    )
    assert run.contacts.names == ("wall", "wall 2")
    assert {"gap[wall]", "gap[wall 2]"} <= set(run.to_pandas())
    assert run.contacts.rows("wall 2") == slice(1, 2)
    assert (
        "wall 2 is struck by 1 N s" in run.contacts.told()[0]
    )  # it is stopped where it touches, within two steps
    np.testing.assert_allclose(np.sum(run.contacts.impulse[:, 1]), 2.0, rtol=1e-12)
    assert repr(run.contacts).startswith("ContactHistory of wall, wall 2: 201 times, ")
