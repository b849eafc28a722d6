"""The Coriolis matrix: the inertia forces of a motion as a matrix times its velocities."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiler import compile_small
from .._misc._errors import InputError
from .._misc._types import Coordinates, Numbers, Time, Velocities, in_full_precision, is_traced
from .._system._problem import Problem
from .._system._system import AbstractSystem
from ._states import state_of


@compile_small
@in_full_precision
def _coriolis(system: AbstractSystem, t: Time, q: Coordinates, v: Velocities) -> Float[Array, "n n"]:
    along = lambda x: jax.jvp(lambda q: system.mass_matrix(t, q), (q,), (x,))[1]
    slopes = jax.jacfwd(lambda q: system.mass_matrix(t, q) @ v)(q)  # of sum_k M_ik v_k by q_j
    rates = jax.jacfwd(system.kinematics, argnums=2)(t, q, v)
    return jnp.where(
        jnp.all(rates == jnp.eye(v.size, dtype=rates.dtype)), (along(v) + slopes - slopes.T) / 2, jnp.nan
    )


def coriolis_matrix(
    system: AbstractSystem | Problem,
    t: Time | float | None = None,
    q: Numbers | None = None,
    v: Numbers | None = None,
) -> Float[Array, "n n"]:
    """C(q, q') of M q'' + C q' = forces (Xu and Liu 2017, eqs. (13), (30), (35)), by Christoffel's symbols:

        C_ij = 1/2 sum_k (dM_ij/dq_k + dM_ik/dq_j - dM_kj/dq_i) q'_k.

    M' - 2 C is skew. The system's own `force` has -C q' in it already.

    **Arguments:**

    - `system`: a system whose velocities are those of its coordinates, or a `Problem` of one, which brings its state.
    - `t`: time [s].
    - `q`: generalized coordinates (n,); by default the reference posture of a mechanism.
    - `v`: generalized velocities q' (n,); by default zero.

    **Returns:** C (n, n); its units are those of M over s.

    **Raises:** `InputError` for quasi-velocities, which give NaN under `jit`, and for wrong shapes.
    """
    own, t, q, v = state_of(system, t, q, v)
    C = _coriolis(own, jnp.asarray(t), q, v) if q.size == v.size else None
    if C is None or (not is_traced(C) and np.any(np.isnan(C))):
        raise InputError(
            f"the velocities of {type(own).__name__} are not the rates of its coordinates, which Christoffel's symbols "
            "are of: a mechanism of hinges and slides has such."
        )
    return C
