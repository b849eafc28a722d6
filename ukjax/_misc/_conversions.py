"""What to write in place of Python and NumPy where JAX traces a value, as it does all that a user's function is given."""

import jax

CONVERSIONS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)
"""Errors of JAX for a traced value that Python or NumPy would have to know."""

_MENDS = {
    jax.errors.TracerBoolConversionError: "decides by a value that is only known in the run (`if`, `and`, `max`): write "
    "jnp.where(condition, x, y), jnp.logical_and or jnp.maximum",
    jax.errors.TracerArrayConversionError: "hands a value that is only known in the run to NumPy or SciPy: write jnp in "
    "place of np, such as jnp.interp for np.interp, and ukjax.Tabulated or jnp.interp for splines of SciPy",
    jax.errors.TracerIntegerConversionError: "uses a value that is only known in the run as a place in a list, or a "
    "count: make the list an array of jnp",
    jax.errors.NonConcreteBooleanIndexError: "picks entries by conditions that are only known in the run: write "
    "jnp.where(condition, x, 0.0)",
}
_OF_NUMBERS = (
    "makes a Python number of a value that is only known in the run (`float`, `int`, `math`, `range`): leave the "
    "conversion out, and write jnp in place of math"
)


def mend(error: Exception) -> str:
    """What a function did that raised one of `CONVERSIONS`, and what it should do: the end of a sentence.

    **Arguments:**

    - `error`: what was raised.
    """
    return next((text for kind, text in _MENDS.items() if isinstance(error, kind)), _OF_NUMBERS) + "."
