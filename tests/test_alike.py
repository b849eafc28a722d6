"""Parts of mechanisms that are alike, evaluated as one; and what is asked of a mechanism without compilation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_calls import compilations

import ukjax as uk
import ukjax.mechanisms as um
from ukjax._compiler import TranslationError
from ukjax._compiler._tracing import cached_or_untranslatable
from ukjax._formula._on_host import acceleration_at
from ukjax._system._rows import position_rows


def _table(order: str) -> um.AbsoluteSystem:
    """A plate on two legs, each hinged to the ground and with a ball at the plate."""
    bodies, legs = [um.box("plate", (0.0, 0.0, 1.0), (1.0, 1.0, 0.1), mass=3.0)], []
    for k in range(2):
        x, y = np.cos(2 * np.pi * k / 3), np.sin(2 * np.pi * k / 3)
        foot, top = (x, y, 0.0), (0.5 * x, 0.5 * y, 1.0)
        bodies.append(um.rod(f"leg{k}", foot, top, mass=1.0 + k, radius=0.05))
        legs.append(
            [
                um.Revolute(f"hinge{k}", "ground", f"leg{k}", foot, (-y, x, 0.0)),
                um.Spherical(f"ball{k}", f"leg{k}", "plate", top),
            ]
        )
    by_kind = [joint for kind in zip(*legs, strict=True) for joint in kind]
    return um.assemble(
        bodies, [joint for leg in legs for joint in leg] if order == "leg" else by_kind, [um.Gravity()]
    )


def _state(system: um.AbsoluteSystem) -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(0)
    return system.q0 + 1e-2 * rng.normal(size=system.q0.size), jnp.asarray(rng.normal(size=18))


def test_rows_of_joints_that_are_alike_are_those_of_each_alone():
    system = _table("leg")

    @jax.jit
    def rows(q):
        alone = jnp.concatenate([c.fn(0.0, q) for c in system.constraints])
        placements = system.placements(0.0, q)
        by_hand = [j.rows(0.0, *(placements[name] for name in j.bodies)) for j in system.joints]
        return position_rows(system, jnp.zeros(()), q), alone, jnp.concatenate(by_hand)

    together, alone, by_hand = rows(_state(system)[0])
    np.testing.assert_allclose(together, alone, atol=1e-15)
    np.testing.assert_allclose(alone, by_hand, atol=1e-15)


@pytest.mark.slow
def test_the_order_of_joints_does_not_matter():
    found = []
    for order in ("leg", "kind"):
        system = _table(order)
        q, v = _state(system)
        acceleration = uk.UdwadiaKalaba().acceleration(system, 0.0, q, v)
        lanes = uk.lanes(system)
        np.testing.assert_allclose(lanes(0.0, q[None], v[None])[0], acceleration.a, rtol=1e-8, atol=1e-8)
        found.append(acceleration.a)
    np.testing.assert_allclose(*found, rtol=1e-8, atol=1e-8)


def test_a_known_state_is_projected_to_where_a_traced_one_is():
    """Of a door on two hinges, which are alike and evaluated as one."""
    system, rng = _hung(2), np.random.default_rng(0)
    q, v = (jnp.asarray(x + 1e-2 * rng.normal(size=x.size)) for x in (system.q0, np.zeros(6)))
    known = uk.project(system, 0.0, q, v)
    once = jax.jit(lambda q, v: uk.project(system, 0.0, q, v))
    traced = once(*once(q, v))
    np.testing.assert_allclose(known[0], traced[0], atol=1e-10)
    np.testing.assert_allclose(known[1], traced[1], atol=1e-9)


def test_reactions_hold_the_plate():
    system = _table("leg")
    v = jnp.zeros(18)
    found = uk.UdwadiaKalaba().acceleration(system, 0.0, system.q0, v)
    on_plate = sum(um.reactions(system, 0.0, system.q0, v)[f"ball{k}"].force for k in range(2))
    np.testing.assert_allclose(on_plate, 3.0 * (found.a[:3] + jnp.asarray([0.0, 0.0, 9.81])), atol=1e-9)
    traced = jax.jit(lambda q: um.reactions(system, 0.0, q, v)["hinge1"].torque)(system.q0)
    np.testing.assert_allclose(um.reactions(system, 0.0, system.q0, v)["hinge1"].torque, traced, atol=1e-9)


def test_what_is_refused_is_not_tried_again():
    tried = []

    @cached_or_untranslatable
    def make(x):
        tried.append(x)
        raise TranslationError(f"{x} has no scalar code")

    for _ in range(3):
        with pytest.raises(TranslationError, match="wine has no scalar code"):
            make("wine")
    assert tried == ["wine"]
    with pytest.raises(TranslationError, match="cannot be kept"):
        make([])


def _hung(hinges: int) -> um.AbsoluteSystem:
    """A door on so many hinges in a line."""
    door = um.box("door", (0.5, 0.0, 1.0), (1.0, 0.05, 2.0), mass=20.0)
    heights = np.linspace(0.2, 1.8, hinges)
    joints = [
        um.Revolute(f"hinge{i}", "ground", "door", (0.0, 0.0, z), (0, 0, 1)) for i, z in enumerate(heights)
    ]
    return um.assemble([door], joints, [um.Gravity()])


@pytest.mark.parametrize(
    "formula",
    [
        *(uk.UdwadiaKalaba(), uk.RangeForm()),
        pytest.param(uk.UdwadiaKalaba(uk.SVD()), marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("hinges", [1, 2])
def test_a_known_acceleration_is_that_of_the_formula(formula, hinges):
    """By NumPy where rows are independent, as with one hinge; with two they depend on each other."""
    system = _hung(hinges)
    v = system.q0[3:4] * 0.0 + jnp.asarray([0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    by_formula = formula.acceleration(system, 0.0, system.q0, v)
    found = acceleration_at(formula, system, 0.0, system.q0, v)
    assert found.rank.dtype == by_formula.rank.dtype
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(by_formula), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8)


def test_reactions_of_independent_rows_ask_xla_for_no_linear_algebra():
    system = _table("leg")
    with compilations() as found:
        um.reactions(system, 0.0, system.q0 + 1e-4, jnp.zeros(18))
    assert not [name for name in found if "accelerate" in name or "solve" in name]


def test_a_singular_mass_matrix_is_told():
    bar = um.assemble([um.rod("bar", (0.0, 0.0, 0.0), (1.0, 0.0, 0.0), 1.0)], [], [um.Gravity()])
    with pytest.raises(uk.InputError, match="not positive definite"):
        um.reactions(bar, 0.0, bar.q0, jnp.zeros(6))
