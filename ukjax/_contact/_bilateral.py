"""The motion of a system without its contacts: a time step but for them, and what a trajectory tells of a state.

Parts of a system that only contacts join are taken one after the other, those alike by one program; see `_stepping` for
the equations.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._compiler import evaluate_by_code
from .._formula._contact_list import Inertia, entry, loop, put
from .._formula._members import Members, places_of, put_entries, take_entries
from .._misc._blank import blank
from .._motion._model import Model
from ._rows import in_pieces, models_of_members, with_push
from ._step_states import FreeStep


def _add_implicit_inertia(model: Model, t: Array, q: Array, v: Array, h: Array) -> tuple[Model, Array]:
    """The model with the inertia that springs and dampers of coordinates add when they are taken implicitly, and c."""
    system: Any = model.system
    if system.added is None:
        return model, jnp.zeros_like(v)
    along = lambda d: jax.jvp(
        lambda q: system.coordinate_force(t, q, v), (q,), (system.kinematics(t, q, d),)
    )[1]
    c = -jnp.diagonal(jax.jacfwd(lambda v: system.coordinate_force(t, q, v))(v))
    k = -jnp.diagonal(jax.jacfwd(along)(jnp.zeros_like(v)))
    added = jnp.maximum(0.5 * h * c + 0.25 * h * h * k, 0)
    system = dataclasses.replace(system, added=added)
    return in_pieces(dataclasses.replace(model, system=system, numbers=None, projection=None)), c


class _Half(NamedTuple):
    """What is known of the middle of a step: positions, velocities, and forces besides, of which there may be none."""

    q: Array
    v: Array
    force: Array


def _force_beside(system: Any, *state: Array) -> Array:
    return system.force_beside_members(*state)


def _find_middle(stiff: Model, t: Array, q: Array, v: Array, h: Array, force: Array) -> Array:
    """Velocities in the middle of a step, at time t and positions q, that begins with velocities v."""
    return v + 0.5 * h * with_push(stiff, force).acceleration(t, q, v)


def _free_step_of_one(
    model: Model, t: Array, q: Array, v: Array, h: Array, half: _Half | None
) -> tuple[tuple[Array, Array, Array, Array], Callable[[Array], Array]]:
    """Of a step without impulses from t, q and v: in its middle q, v and accelerations, and v at its end; and what
    impulses change velocities by."""
    middle = t + 0.5 * h
    q_middle = q + 0.5 * h * model.system.kinematics(t, q, v) if half is None else half.q
    stiff, damping = _add_implicit_inertia(model, middle, q_middle, v, h)
    if half is None:
        none = jnp.zeros_like(v)
        half = _Half(q_middle, _find_middle(stiff, middle, q_middle, v, h, none), none)
    pushed = lambda push: with_push(stiff, push).acceleration(middle, half.q, half.v)
    a, respond = jax.linearize(pushed, half.force + damping * (half.v - v))
    return (half.q, half.v, a, v + h * a), respond


def _arrive_of_one(
    model: Model, q: Array, both: Array, v: Array, d: Array, t: Array, h: Array, middle: Array
) -> tuple[tuple[Array, Array], Array]:
    of = lambda v: model.system.kinematics(t + 0.5 * h, middle, v)
    y = q + 0.5 * h * of(both) + jax.jvp(of, (both,), (d,))[1], v
    return model.kept(t + h, y) if model.system.constraints else (y, jnp.zeros((), bool))


@final
class BilateralMotion:
    """The motion of a system without its contacts, one part after the other.

    **Arguments:**

    - `model`: of the whole.
    - `sizes`: how many coordinates and velocities it has.
    """

    def __init__(self, model: Model, sizes: tuple[int, int]):
        q, v = (tuple(range(n)) for n in sizes)
        self.members = models_of_members(model) or [Members(model, (q,), (v,))]
        self._whole: Any = model.system.system  # pyright: ignore[reportAttributeAccessIssue]
        self._is_beside = bool(model.parts) and self._whole.force_beside_members is not None
        whole = model.system.blocks or (v,)
        self.blocks = whole if not model.parts else tuple(own for x in self.members for own in x.v)

    def step_freely(self, t: Array, q: Array, v: Array, h: Array) -> FreeStep:
        """A step without impulses."""
        half = self._half_step(t, q, v, h)
        found = tuple(blank(x.size, x.dtype) for x in (q, v, v, v))
        responses = []
        for members in self.members:
            of_q, of_v = members.q, members.v
            size, alone = len(of_v[0]), len(members) == 1
            W = blank(0 if alone else len(members) * size * size, v.dtype)

            def one(k: Any, model: Model, state: Any, of: tuple = (of_q, of_v, size, alone)) -> Any:
                (found, W), (of_q, of_v, size, alone) = state, of
                numbers = of_q, of_v, of_v, of_v
                own_half = half and _Half(*(take_entries(*x, k) for x in zip(half, numbers, strict=False)))
                own, respond = _free_step_of_one(
                    model, t, take_entries(q, of_q, k), take_entries(v, of_v, k), h, own_half
                )
                found = tuple(
                    put_entries(x, x_of, k, y) for x, x_of, y in zip(found, numbers, own, strict=True)
                )
                if alone:  # it may be large, and what rows share is computed before their loop
                    responses.append(respond)
                    return found, W

                # A loop: what does not depend on j is computed once, before it.
                def column(j: Array, W: Array) -> Array:
                    moved = respond(jnp.stack([(j == i).astype(v.dtype) for i in range(size)]))
                    for i in range(size):
                        W = put(W, (k * size + i) * size + j, moved[i])
                    return W

                return found, loop(size, column, W)

            found, W = members.each(one, (found, W))
            if not alone:
                responses.append(W)
        q_middle, v_middle, a, end = found
        inertia = Inertia(self.blocks, functools.partial(self._respond, responses))
        return FreeStep(t + 0.5 * h, q_middle, v_middle, a, end, inertia)

    def _half_step(self, t: Array, q: Array, v: Array, h: Array) -> _Half | None:
        """The middle of a step, where there are forces that no part has."""
        if not self._is_beside:
            return None
        beside = functools.partial(evaluate_by_code, _force_beside, self._whole)
        q, t = q + 0.5 * h * self.kinematics(t, q, v), t + 0.5 * h
        force = beside(t, q, v)
        middle = blank(v.size, v.dtype)
        for members in self.members:

            def one(k: Any, model: Model, middle: Array, of: tuple = (members.q, members.v)) -> Array:
                own_q, own_v, own_force = (
                    take_entries(*x, k) for x in zip((q, v, force), (*of, of[1]), strict=True)
                )
                stiff, _ = _add_implicit_inertia(model, t, own_q, own_v, h)
                return put_entries(middle, of[1], k, _find_middle(stiff, t, own_q, own_v, h, own_force))

            middle = members.each(one, middle)
        return _Half(q, middle, beside(t, q, middle))

    def _respond(
        self, responses: list[Any], x: Array, R: Array, to: Array, over: Callable[..., Any]
    ) -> Array:
        """See `Inertia`."""
        if len(self.members) == 1 and len(self.members[0]) == 1:
            # One by one, not as an array in memory, of which it would not be known what is zero beside it.
            moved = responses[0](jnp.stack([entry(x, k) for k in range(x.size)]))
            return loop(x.size, lambda j, R: put(R, to + j, entry(moved, j)), R)

        def of_block(block: Array, R: Array) -> Array:
            first = 0
            for members, response in zip(self.members, responses, strict=True):
                inside = (block >= first) & (block < first + len(members))
                R = loop(
                    inside.astype(block.dtype),
                    functools.partial(self._respond_in_block, members, response, x, to, block - first),
                    R,
                )
                first += len(members)
            return R

        return over(of_block, R)

    def _respond_in_block(
        self, members: Members, response: Any, x: Array, to: Array, k: Array, _: Array, R: Array
    ) -> Array:
        if len(members) == 1:
            moved = response(take_entries(x, members.v, 0))
            for i, j in enumerate(members.v[0]):
                R = put(R, to + j, moved[i])
            return R
        size, own = len(members.v[0]), take_entries(x, members.v, k)
        for i, j in enumerate(places_of(members.v, k)):
            row = (k * size + i) * size
            R = put(R, to + j, sum(entry(response, row + c) * own[c] for c in range(size)))
        return R

    def arrive(
        self, q: Array, both: Array, v: Array, d: Array, t: Array, h: Array, free: FreeStep
    ) -> tuple[tuple[Array, Array], Array]:
        """The end of a step, q + h/2 N (v + v+) + N d, on the bilateral rows, and whether it is off them."""
        state = (blank(q.size, q.dtype), blank(v.size, v.dtype)), jnp.zeros((), bool)
        for members in self.members:
            of_q, of_v = members.q, members.v

            def one(k: Any, model: Model, state: Any, of: tuple = (of_q, of_v)) -> Any:
                (found, off), (of_q, of_v) = state, of
                own_q, middle = (take_entries(x, of_q, k) for x in (q, free.q))
                own_both, own_v, own_d = (take_entries(x, of_v, k) for x in (both, v, d))
                own, own_off = _arrive_of_one(model, own_q, own_both, own_v, own_d, t, h, middle)
                found = tuple(put_entries(*x) for x in zip(found, of, (k, k), own, strict=True))
                return found, off | own_off

            state = members.each(one, state)
        return state

    def kinematics(self, t: Array, q: Array, v: Array) -> Array:
        """The rate of q."""
        rate = blank(q.size, q.dtype)
        for members in self.members:
            of_q, of_v = members.q, members.v

            def one(k: Any, model: Model, rate: Array, of: tuple = (of_q, of_v)) -> Array:
                own = take_entries(q, of[0], k), take_entries(v, of[1], k)
                return put_entries(rate, of[0], k, model.system.kinematics(t, *own))

            rate = members.each(one, rate)
        return rate


# Of what is told, by velocity; all else of parts without rows of constraints are numbers to be added.
_BY_VELOCITY = ("a", "constraint_force")


def observe_parts(model: Model, t: Array, q: Array, v: Array, push: Array) -> dict[str, Any]:
    """What a `Trajectory` tells of a state of a system whose parts have no rows of constraints, under a push."""
    found = dict[str, Any]()
    whole: Any = model.system.system  # pyright: ignore[reportAttributeAccessIssue]
    if whole.force_beside_members is not None:
        push = push + evaluate_by_code(_force_beside, whole, t, q, v)
    for members in models_of_members(model):
        of_q, of_v = members.q, members.v

        def observe(k: Any, one: Model, of: tuple = (of_q, of_v)) -> dict[str, Array]:
            own_q, own_v, own_push = (
                take_entries(*x, k) for x in zip((q, v, push), (*of, of[1]), strict=True)
            )
            return with_push(one, own_push).observed(t, own_q, own_v)

        def add(k: Any, one: Model, found: Any, observe: Any = observe, of_v: Any = of_v) -> Any:
            own = observe(k, one)
            return {
                name: put_entries(x, of_v, k, own[name]) if name in _BY_VELOCITY else x + own[name]
                for name, x in found.items()
            }

        if not found:
            like = jax.eval_shape(functools.partial(observe, 0), members[0])
            found = {
                name: jnp.zeros(v.shape if name in _BY_VELOCITY else x.shape, x.dtype)
                for name, x in like.items()
            }
        found = members.each(add, found)
    return found
