"""When an event occurred within the step that it ended: by halving that step."""

from collections.abc import Callable
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Bool, Float


class _Bracket(NamedTuple):
    """The crossing lies between `lower` and the iterate, where the function has the `sign` it has after it."""

    lower: Float[Array, ""]
    sign: Float[Array, ""]


@final
class Bracketing(optx.AbstractRootFinder):
    """Bisection on the interval Diffrax gives, whose end is returned exactly where the function is zero there.

    Newton's method may leave the step, or find a crossing the event is not about. Of Diffrax's functions, one for each
    event, all but that of the event that occurred are zero. The derivative is Optimistix's, of the implicit function.

    **Arguments:**

    - `rtol`, `atol`: the width at which to stop, relative to the time, and in seconds.
    - `norm`: Optimistix asks for it; of no use to bisection.
    """

    rtol: float
    atol: float
    norm: Callable = eqx.field(static=True, default=optx.max_norm)

    def _sign(self, fn: Any, t: Array, args: Any) -> tuple[Array, Any]:
        values, aux = fn(t, args)
        return jnp.sign(sum(jax.tree.leaves(values))).astype(t.dtype), aux

    def init(
        self, fn: Any, y: Array, args: Any, options: dict[str, Any], f_struct: Any, aux_struct: Any, tags: Any
    ) -> _Bracket:
        lower = jnp.asarray(options["lower"], y.dtype)
        at_start = self._sign(fn, lower, args)[0] == 0
        # Of equal ends, the first iteration makes the start the result.
        return _Bracket(lower, jnp.where(at_start, jnp.nan, self._sign(fn, y, args)[0]))

    def step(
        self, fn: Any, y: Array, args: Any, options: dict[str, Any], state: _Bracket, tags: Any
    ) -> tuple[Array, _Bracket, Any]:
        found_at_start = jnp.isnan(state.sign)
        middle = 0.5 * (state.lower + y)
        sign, aux = self._sign(fn, middle, args)
        passed = sign == state.sign
        upper = jnp.where(found_at_start, state.lower, jnp.where(passed, middle, y))
        lower = jnp.where(found_at_start | passed, state.lower, middle)
        return upper, _Bracket(lower, state.sign), aux

    def terminate(
        self, fn: Any, y: Array, args: Any, options: dict[str, Any], state: _Bracket, tags: Any
    ) -> tuple[Bool[Array, ""], optx.RESULTS]:
        return y - state.lower <= self.rtol * (1 + jnp.abs(y)), optx.RESULTS.successful

    def postprocess(
        self,
        fn: Any,
        y: Array,
        aux: Any,
        args: Any,
        options: dict[str, Any],
        state: _Bracket,
        tags: Any,
        result: optx.RESULTS,
    ) -> tuple[Array, Any, dict[str, Any]]:
        return y, aux, {}
