"""What a traced function computes and nobody uses is no part of its scalar code."""

import jax
import jax.numpy as jnp
import numpy as np

from ukjax._compiler import program_of

NUMBERS = [jax.ShapeDtypeStruct((3,), jnp.float64)]


def test_what_nobody_uses_is_left_out() -> None:
    """Also what has no scalar code."""

    def function(x: jax.Array) -> jax.Array:
        moments, _ = jnp.linalg.eigh(jnp.outer(x, x))  # LAPACK's
        unused = jnp.sort(moments) * x
        step = lambda carry, y: (carry * y, y * unused.shape[0])
        return jax.lax.scan(step, x[0], x)[0]

    program = program_of(function, NUMBERS, jnp.float64)
    assert program.size == 3
    given = np.array([2.0, 3.0, 5.0])
    np.testing.assert_allclose(program(jnp.asarray(given)), [2.0 * 30.0], rtol=1e-15)
