"""Contacts that share no body, directly or by others, are solved apart."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

import ukjax as uk
import ukjax.mechanisms as um
from ukjax._formula._contact_list import Inertia, Room, empty_list, put
from ukjax._formula._contact_operator import find_islands

CONTACTS, BLOCKS = 12, 10


def _found(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order of contacts with two blocks of two velocities each, and where islands begin."""
    room = Room(CONTACTS, CONTACTS, 0, 2 * BLOCKS, 4)
    inertia = Inertia(tuple((2 * b, 2 * b + 1) for b in range(BLOCKS)), lambda *_: _[1])

    def islands(blocks: jnp.ndarray) -> tuple[jnp.ndarray, jnp.ndarray, jnp.ndarray]:
        contacts = empty_list(room, blocks.dtype)
        J, of = contacts.J, blocks.astype(int)
        for k in range(CONTACTS):
            J = J.begin(jnp.asarray(k))
            for side in range(2):
                for i in range(2):
                    J = J.add(jnp.asarray(k), jnp.asarray(k), 2 * of[2 * k + side] + i, [jnp.ones(())])
        each = lambda x, value: [x := put(x, k, value(k)) for k in range(CONTACTS)][-1]
        contacts = contacts._replace(
            row=each(contacts.row, lambda k: k),
            normals=each(contacts.normals, lambda k: 1),
            tangents=each(contacts.tangents, lambda k: 0),
            J=J,
            number=jnp.asarray(CONTACTS),
            rows=jnp.asarray(CONTACTS),
        )
        found = find_islands(contacts, room, inertia)
        return found.number, found.order, found.begin

    number, order, begin = uk.scalarize(islands)(jnp.asarray(blocks.reshape(-1), float))
    return np.asarray(order)[:CONTACTS], np.asarray(begin)[: int(number) + 1]


@pytest.mark.parametrize("seed", range(6))
def test_islands_are_connected_components(seed: int) -> None:
    """Of contacts and blocks of velocities, as SciPy finds them."""
    blocks = np.random.default_rng(seed).integers(0, BLOCKS, (CONTACTS, 2))
    order, begin = _found(blocks)
    edges = np.repeat(np.arange(CONTACTS), 2), CONTACTS + blocks.ravel()
    graph = coo_array((np.ones(2 * CONTACTS), edges), (CONTACTS + BLOCKS,) * 2)
    wanted = connected_components(graph, directed=False)[1][:CONTACTS]
    found = np.empty(CONTACTS, int)
    for i, (a, z) in enumerate(itertools.pairwise(begin)):
        for k in range(a, z - 1):  # each is met from one behind it
            assert np.isin(blocks[order[k]], blocks[order[k + 1 : z]]).any()
        found[order[a:z]] = i
    assert sorted(order) == list(range(CONTACTS))
    assert_allclose(found[:, None] == found, wanted[:, None] == wanted)


def test_stacks_beside_each_other_bear_their_own_weight() -> None:
    """Of discs of 1 kg, three upon each other and one beside them, named so that their contacts alternate."""
    heights = {"a": (0.0, 0.1), "b": (1.0, 0.1), "c": (0.0, 0.3), "d": (0.0, 0.5)}
    discs = [um.disk(name, at, 0.1, mass=1.0) for name, at in heights.items()]
    shapes = {name: um.Sphere(name, at, 0.1) for name, at in heights.items()}
    ground = um.HalfSpace("ground", point=(0.0, 0.0))
    pairs = [("a", "c"), ("b", None), ("c", "d"), ("a", None)]
    contacts = [um.Contact(shapes[x], shapes[y] if y else ground) for x, y in pairs]
    mechanism = um.assemble(discs, loads=[um.Gravity()], contacts=contacts, name="stacks")
    run = uk.simulate(um.problem(mechanism, t1=0.05), contact="steps", dt0=1e-3, ts=[0.05])
    assert run.contacts is not None
    g = 9.81
    assert_allclose(run.contacts.force[0], [2 * g, g, g, 3 * g], rtol=1e-6)
