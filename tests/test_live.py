"""What a traced function computes and nobody uses is no part of its scalar code."""

import jax
import jax.numpy as jnp
import numpy as np

from ukjax._compiler import array_function


def test_what_nobody_uses_is_left_out() -> None:
    """Also what has no scalar code."""

    def function(x: jax.Array) -> jax.Array:
        unused = jnp.linalg.eigvals(jnp.diag(x)).real * x
        step = lambda carry, y: (carry * y, y * unused.shape[0])
        return jax.lax.scan(step, x[0], x)[0]

    written, given = array_function(function, jnp.zeros(3)), np.array([2.0, 3.0, 5.0])
    assert written.program.size == 3
    np.testing.assert_allclose(written(jnp.asarray(given)), 2.0 * 30.0, rtol=1e-15)
