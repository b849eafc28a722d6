"""What to write in place of Python and NumPy where JAX traces a value, as it does all that a user's function is given."""

import jax

_MENDS = {
    jax.errors.TracerBoolConversionError: "decides by a value that is only known in the run (`if`, `and`, `max`): write "
    "jnp.where(condition, x, y), jnp.logical_and or jnp.maximum",
    jax.errors.TracerArrayConversionError: "hands a value that is only known in the run to NumPy or SciPy: write jnp in "
    "place of np, such as jnp.interp for np.interp, and ukjax.Tabulated or jnp.interp for splines of SciPy",
    jax.errors.TracerIntegerConversionError: "uses a value that is only known in the run as a place in a list, or a "
    "count: make the list an array of jnp",
    jax.errors.NonConcreteBooleanIndexError: "picks entries by conditions that are only known in the run: write "
    "jnp.where(condition, x, 0.0)",
    jax.errors.ConcretizationTypeError: "makes a Python number of a value that is only known in the run (`float`, `int`, "
    "`math`, `range`): leave the conversion out, and write jnp in place of math",
}
"""By errors of JAX for a traced value that Python or NumPy would have to know; the last is the base of some others."""

_OF_BUFFERS = (
    "writes into an array, entry by entry, what is only known in the run: write jnp.stack([x, y]), or "
    "f = f.at[0].set(x) in place of f[0] = x, with an array f of jnp"
)


def mend(error: Exception) -> str | None:
    """What a function did wrong with a traced value, and what it should do: a sentence's end. None for other errors."""
    of_numpy = isinstance(error, ValueError) and isinstance(
        error.__cause__, jax.errors.ConcretizationTypeError
    )
    of_jax = isinstance(error, TypeError) and "JAX arrays are immutable" in str(error)
    if of_numpy or of_jax:
        return f"{_OF_BUFFERS}."
    return next((f"{text}." for kind, text in _MENDS.items() if isinstance(error, kind)), None)
