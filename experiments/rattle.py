"""RATTLE, symplectic and symmetric, for systems of constant mass matrix under forces and constraints of position.

One step of size h (Andersen 1983; Hairer, Lubich and Wanner, Geometric Numerical Integration, VII.1.4):

    v' = v + (h/2) M^-1 (Q(q) - phi_q(q)^T lambda),    q1 = q + h v',    phi(q1) = 0,
    v1 = v' + (h/2) M^-1 (Q(q1) - phi_q(q1)^T mu),     phi_q(q1) v1 = 0.

Steps of sizes gamma_i h in a row are again symmetric and symplectic, and of higher order. `long_runs.py` uses it.
"""

import jax
import jax.numpy as jnp
import numpy as np

import ukjax as uk

PLAIN = np.ones(1)
_HALF = (
    0.74167036435061295344822780, -0.40910082580003159399730010, 0.19075471029623837995387626,
    -0.57386247111608226665638773, 0.29906418130365592384446354, 0.33462491824529818378495798,
    0.31529309239676659663205666,
)  # fmt: skip
COMPOSED = np.array([*_HALF, -0.79688793935291635401978884, *_HALF[::-1]])
"""Order 8 by 15 steps (Suzuki and Umeno 1993; the book's V.3.11)."""
_ITERATIONS = 8


def _step(system: uk.AbstractSystem, q: jax.Array, v: jax.Array, h: jax.Array) -> tuple[jax.Array, jax.Array]:
    zero, rest = jnp.zeros_like(h), jnp.zeros_like(v)
    root = 1 / jnp.sqrt(jnp.diag(system.mass_matrix(zero, q)))
    phi = lambda q: uk.constraint_rows(system, zero, q, rest).position_error
    force = lambda q: root**2 * system.force(zero, q, rest)

    def directions(q: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The Jacobian of phi, and its inverse in the mass metric."""
        J = uk.constraint_rows(system, zero, q, rest).A
        return J, root[:, None] * uk.pinv(J * root, uk.GramSchmidt(rcond=1e-7)).matrix

    inverse = directions(q)[1]
    free = q + h * (v + 0.5 * h * force(q))
    moved = jax.lax.fori_loop(0, _ITERATIONS, lambda _, x: x - inverse @ phi(x), free)
    rate = (moved - q) / h + 0.5 * h * force(moved)
    J, inverse = directions(moved)
    return moved, rate - inverse @ (J @ rate)


def rattle(
    system: uk.AbstractSystem, q: jax.Array, v: jax.Array, h: jax.Array, gammas: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The state after steps gammas h; the mass matrix must be diagonal."""
    return jax.lax.scan(lambda y, g: (_step(system, *y, g * h), None), (q, v), gammas)[0]
