"""What stops a run before its end: real functions of (t, q, v), where they cross zero."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Var
from jaxtyping import Array, Float, Int

from .._misc._arguments import number_array, require_function
from .._misc._called import called
from .._misc._closures import hoisted
from .._misc._errors import InputError
from .._misc._types import Coordinates, Time, Velocities, is_traced
from ._event_location import Bracketing
from ._event_separation import separated as separated
from ._interned import interned_function

Direction = Literal["up", "down", 1, -1] | None
_DIRECTIONS = {None: None, "up": True, 1: True, "down": False, -1: False}
"""As Diffrax has them."""


@final
class Event(eqx.Module):
    """Stops a run where a function of the state crosses zero.

    **Arguments:**

    - `fn`: a real function fn(t, q, v), such as a height: smooth where it crosses zero, not a truth value.
    - `direction`: `"up"` or 1 for crossings from below only, `"down"` or -1 for those from above only; by default both.
    - `name`: what `Trajectory.event_name` and errors call it; by default the function's own name.

    **Raises:** `InputError` if `fn` is not a function, or for another direction.
    """

    fn: Callable[[Time, Coordinates, Velocities], Float[Array, ""]]
    direction: Direction = eqx.field(static=True)
    name: str | None = eqx.field(static=True)

    def __init__(
        self,
        fn: Callable[[Time, Coordinates, Velocities], Float[Array, ""]],
        direction: Direction = None,
        *,
        name: str | None = None,
    ):
        require_function("event", fn, "t, q, v")
        if isinstance(direction, bool) or direction not in _DIRECTIONS:
            raise InputError(
                f"the direction of an event must be 'up' (or 1), 'down' (or -1), or None for both, got {direction!r}."
            )
        if not (name is None or isinstance(name, str)):
            raise InputError(f"the name of an event must be a string, got {name!r}.")
        self.fn, self.direction, self.name = fn, direction, name


Events = Callable | Event | dfx.Event | Sequence[Callable | Event]
"""What `simulate` takes for `event`."""


@final
class _Condition(eqx.Module):
    """An event's function as Diffrax calls it.

    - `fn`: the user's.
    - `name`: what errors call it.
    - `of_diffrax`: whether `fn` is called as Diffrax calls it, or with (t, q, v).
    """

    fn: Callable
    name: str = eqx.field(static=True)
    of_diffrax: bool = eqx.field(static=True)

    def __call__(self, t: Array, y: tuple[Array, Array], args: Any, **more: Any) -> Array:
        def value(t: Array, y: tuple[Array, Array]) -> Array:
            state = (t, y, args) if self.of_diffrax else (t, *y)
            result = called(_called(self.name), self.fn, *state, **(more if self.of_diffrax else {}))
            return self._checked(number_array(f"what {_called(self.name)} returns", result))

        self._require_change(value, t, y)
        return value(t, y)

    def _checked(self, result: Array) -> Array:
        if result.ndim:
            raise InputError(f"{_called(self.name)} returned shape {result.shape}; it must be a scalar.")
        if result.dtype == bool:
            raise InputError(
                f"{_called(self.name)} returned a truth value: return the number that crosses zero, such as "
                "q[0] instead of q[0] < 0, with direction='down' if needed."
            )
        if not jnp.issubdtype(result.dtype, jnp.floating):
            raise InputError(f"{_called(self.name)} must return a real number, got {result.dtype}.")
        return result

    def _require_change(self, value: Callable, t: Array, y: tuple[Array, Array]) -> None:
        """Raises `InputError` for what jumps or stays: its derivative is known to be zero everywhere."""
        slope = lambda state, change: jax.jvp(value, state, change)[1]
        jaxpr = jax.make_jaxpr(slope)((t, y), (t, y)).jaxpr
        changed = set(jaxpr.invars[len(jaxpr.invars) // 2 :])
        varies = lambda x: isinstance(x, Var) and x in changed
        for equation in jaxpr.eqns:
            if any(map(varies, equation.invars)):
                changed.update(equation.outvars)
        if not varies(jaxpr.outvars[0]):
            raise InputError(
                f"{_called(self.name)} is a constant, or a step: its derivative is zero everywhere. Return the number "
                "that crosses zero itself, such as q[0] in place of jnp.sign(q[0])."
            )


def _called(name: str) -> str:
    return "the event" if name == "event" else f"the event {name}"


def _name(fn: Callable, i: int, count: int) -> str:
    name = getattr(fn, "__name__", "<lambda>")
    return name if name != "<lambda>" else f"event {i}" if count > 1 else "event"


def as_diffrax(given: Events | None, state: tuple[Array, Array, Array]) -> dfx.Event | None:
    """A Diffrax event that locates where functions of (t, q, v) cross zero.

    **Arguments:**

    - `given`: a function, an event of ours or Diffrax's, a list of functions and events of ours, or None.
    - `state`: (t, q, v); of these only shapes and types matter.

    **Raises:** `InputError` for anything else.
    """
    if given is None:
        return None
    if isinstance(given, dfx.Event):
        places, structure = jax.tree_util.tree_flatten_with_path(given.cond_fn, is_leaf=callable)
        names = [jax.tree_util.keystr(path, simple=True) or _name(fn, 0, 1) for path, fn in places]
        conditions = [_Condition(fn, name, True) for name, (_, fn) in zip(names, places, strict=True)]
        return dfx.Event(jax.tree.unflatten(structure, conditions), given.root_finder, given.direction)
    several: list[Any] = list(given) if isinstance(given, list | tuple) else [given]
    if not several:
        raise InputError("event is an empty list; give None, a function, or a list of at least one.")
    for x in several:
        if isinstance(x, dfx.Event):
            raise InputError("a diffrax.Event stands alone: give a list of functions and of ukjax.Event.")
        if not isinstance(x, Event):
            require_function("event, if it is no ukjax.Event and no diffrax.Event,", x, "t, q, v")
    events = [x if isinstance(x, Event) else Event(x) for x in several]
    names = [x.name or _name(x.fn, i, len(events)) for i, x in enumerate(events)]
    functions = [hoisted(x.fn) for x in events]
    functions = [
        fn if is_traced(fn) else called(_called(name), interned_function, fn, *state)
        for fn, name in zip(functions, names, strict=True)
    ]
    conditions = [_Condition(fn, name, False) for fn, name in zip(functions, names, strict=True)]
    width = 1e3 * float(jnp.finfo(state[1].dtype).eps)
    directions = [_DIRECTIONS[x.direction] for x in events]
    return dfx.Event(conditions, Bracketing(width, width), directions)


def event_names(event: dfx.Event | None) -> tuple[str, ...]:
    """The names of the events, in the order of their indices.

    **Arguments:**

    - `event`: as `as_diffrax` gives it.
    """
    return () if event is None else tuple(x.name for x in jax.tree.leaves(event.cond_fn, is_leaf=callable))


def which(event_mask: Any) -> Int[Array, ""]:
    """The index of the event that ended a run, -1 where none did.

    **Arguments:**

    - `event_mask`: that of Diffrax's solution.
    """
    mask = jax.tree.leaves(event_mask)
    if not mask:
        return np.asarray(-1)  # pyright: ignore[reportReturnType]
    mask = jnp.stack(mask)
    return jnp.where(jnp.any(mask), jnp.argmax(mask), -1)
