"""Events of the user's own after which a run goes on, from another state: functions that cross zero, and reset maps."""

from collections.abc import Callable
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Number = Callable[[Array, Array, Array], Array]
Map = Callable[[Array, Array, Array], tuple[Array, Array]]

# To how much an event is zero, in units of the precision, beside the size of the state.
_ROUNDING = 100.0
# To how much an event may rise between two of its occurrences that are told apart, in the same units.
_RISE = 1e3


@final
class Reset(eqx.Module):
    """One crossing of zero, from above, and the state that follows.

    - `fn`: a number (t, q, v), positive before.
    - `reset`: the state (q, v) after it.
    - `name`: what the run calls it.
    """

    fn: Number
    reset: Map
    name: str = eqx.field(static=True)


def values(resets: tuple[Reset, ...], t: Array, q: Array, v: Array) -> tuple[Array, Array]:
    """The numbers (k,), and to how much each is zero (k,)."""
    found = jnp.stack([x.fn(t, q, v) for x in resets]) if resets else jnp.zeros(0, q.dtype)
    return found, jnp.broadcast_to(_ROUNDING * _rounding(q, v), found.shape)


def _rounding(q: Array, v: Array) -> Array:
    size = 1 + jnp.maximum(jnp.max(jnp.abs(q), initial=0), jnp.max(jnp.abs(v), initial=0))
    return jax.lax.stop_gradient(jnp.finfo(q.dtype).eps * size)


def leaving(
    resets: tuple[Reset, ...], state: tuple[Array, Array, Array], rate: tuple[Array, Array]
) -> Float[Array, " k"]:
    """1 for events that are zero and about to become negative: they have just occurred, or the run starts there."""
    t, q, _ = state
    of = lambda *state: values(resets, *state)
    (now, slack), (falling, _) = jax.jvp(of, state, (jnp.ones_like(t), *rate))
    return ((jnp.abs(now) <= slack) & (falling <= 0)).astype(q.dtype)


def accumulates(
    resets: tuple[Reset, ...],
    which: Array,
    kinematics: Callable[..., Array],
    state: tuple[Array, Array, Array],
    rate: tuple[Array, Array],
) -> Array:
    """Whether an event rises from zero by hardly more than rounding before it occurs again, from the state after it: by
    f'^2 / (2 |f''|), as the bounces of a ball, which become ever shorter.
    """
    (t, q, v), (u, a) = state, rate
    _, bend = jax.jvp(kinematics, state, (one := jnp.ones_like(t), u, a))
    along = lambda s: values(resets, t + s, q + s * u + s * s / 2 * bend, v + s * a)[0]
    slope = lambda s: jax.jvp(along, (s,), (one,))
    (now, rise), (_, bent) = jax.jvp(slope, (jnp.zeros_like(t),), (one,))
    least = _RISE * _rounding(q, v)
    height = now + rise * rise / (-2 * jnp.where(bent < 0, bent, -jnp.inf))
    returns = (rise > 0) & (bent < 0) & (now >= -least) & (height <= least)
    return jnp.any(returns & (jnp.arange(len(resets)) == which))


def apply_reset(resets: tuple[Reset, ...], which: Array, t: Array, q: Array, v: Array) -> tuple[Array, Array]:
    """The state after an event."""
    # JAX keeps branches by their hash, which modules with lists have not.
    branches = [lambda t, q, v: (q, v), *(lambda *y, x=x: x.reset(*y) for x in resets)]
    return jax.lax.switch(which + 1, branches, t, q, v)
