"""An impact of one contact by Poisson's law: its course over the normal impulse (Darboux 1880; Keller 1986)."""

from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._arguments import fails, real_array, require_finite, require_not_negative
from .._misc._errors import InputError
from ._solve import is_symmetric

_ROUNDING = (
    1e3  # machine epsilons of the slip, below which a normal velocity is zero: it comes of terms as large
)


@final
class Impact(eqx.Module):
    """What `poisson_impact` returns.

    - `impulses`: p = (p_n, p_t) (2,) [N s].
    - `velocities`: u after the impact (2,) [m/s].
    - `compression`: the normal impulse at which u_n is zero: its last root [N s].
    - `slips`: the normal impulse at which the first slip ends, infinite where it does not [N s].
    - `energy`: what the impact changes it by [J].
    """

    impulses: Float[Array, " 2"]
    velocities: Float[Array, " 2"]
    compression: Float[Array, ""]
    slips: Float[Array, ""]
    energy: Float[Array, ""]


def poisson_impact(delassus: Any, velocity: Any, friction: Any, restitution: Any) -> Impact:
    """An impact in the plane: Coulomb's law holds at every moment of it, and Poisson's at its end.

        du/dp_n = G (1, -mu s),  s = sign u_t;      at u_t = 0 sticking, (1, -G_nt / G_tt), where |G_nt| <= mu G_tt

    Compression lasts until u_n = 0, at p_c; the impact ends at (1 + e) p_c. A contact that does not close, u_n = 0 but
    for rounding, is struck all the same where slip would press it together however large the force,
    G_nn - mu s G_nt < 0 (Painleve): an impact without collision. For e = 0 it is that of runs; otherwise Newton's law,
    which runs obey, may give other impulses where slip ends or turns round. This one never creates energy with e = 0.

    Derivatives are those of the phases the impact has.

    **Arguments:**

    - `delassus`: G = J M^-1 J^T of the normal and the tangential row, positive definite (2, 2) [1/kg].
    - `velocity`: u = (u_n, u_t) before (2,) [m/s].
    - `friction`: mu.
    - `restitution`: Poisson's e.

    **Returns:** `Impact`.

    **Raises:** `InputError` for wrong shapes, values that are not finite, negative coefficients, and a G that is not
    symmetric and positive definite.
    """
    return _impact(*_check_arguments(delassus, velocity, friction, restitution))


@jax.jit
def _impact(
    G: Float[Array, "2 2"], u: Float[Array, " 2"], mu: Float[Array, ""], e: Float[Array, ""]
) -> Impact:
    Gnt, Gtt = G[1]
    s, turned = jnp.sign(u[1]), jnp.sign(Gnt)
    sticks = jnp.abs(Gnt) <= mu * Gtt
    first = jnp.stack([jnp.ones_like(mu), -mu * s])
    then = jnp.stack([jnp.ones_like(mu), jnp.where(sticks, -Gnt / Gtt, -mu * turned)])
    (a, b), c = G @ first, (G @ then)[0]
    slows = b * s < 0
    slips = jnp.where(s == 0, 0, jnp.where(slows, -u[1] / jnp.where(slows, b, 1), jnp.inf))
    before_end = jnp.where(jnp.isfinite(slips), slips, 0)
    at_end = jnp.where(jnp.isfinite(slips), u[0] + a * before_end, jnp.inf)
    sliding = (a > 0) & (at_end >= 0)
    root = jnp.where(
        sliding, -u[0] / jnp.where(sliding, a, 1), before_end - jnp.where(sliding, 0, at_end) / c
    )
    parts = u[0] > _ROUNDING * jnp.finfo(u.dtype).eps * jnp.abs(u[1])
    struck = (u[0] < 0) | (~parts & (a < 0) & (s != 0))
    compression = jnp.where(struck, root, 0)
    whole = (1 + e) * compression
    slipped = jnp.minimum(whole, slips)
    p = slipped * first + (whole - slipped) * then
    after = u + G @ p
    return Impact(p, after, compression, slips, 0.5 * (u + after) @ p)


def _check_arguments(delassus: Any, velocity: Any, friction: Any, restitution: Any) -> tuple[Array, ...]:
    names = "delassus", "velocity", "friction", "restitution"
    given = dict(zip(names, (delassus, velocity, friction, restitution), strict=True))
    G, u, mu, e = (real_array(name, x) for name, x in given.items())
    if G.shape != (2, 2) or u.shape != (2,) or mu.shape or e.shape:
        raise InputError(
            "an impact has delassus (2, 2), velocity (2,), and numbers for friction and restitution, got "
            f"{G.shape}, {u.shape}, {mu.shape} and {e.shape}."
        )
    for name, x in given.items():
        require_finite(name, x)
    for name in names[2:]:
        require_not_negative(name, given[name])
    regular = lambda G: is_symmetric(G) and G[0, 0] > 0 and G[0, 0] * G[1, 1] > G[0, 1] ** 2
    if fails(regular, delassus):
        raise InputError("delassus must be symmetric and positive definite: it is J M^-1 J^T.")
    return G, u, mu.astype(u.dtype), e.astype(u.dtype)
