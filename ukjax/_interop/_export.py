"""Compiled simulations in files, which run where neither the model's Python nor ukjax is."""

import contextlib
import importlib.metadata
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
from jax.extend.core import jaxpr_as_fun

from .._compiler import to_leave_process
from .._compiler._structured._jaxprs import core_jaxpr, jaxprs_in, line_of
from .._misc._arguments import all_of, call_user_function, number_array, one_of, whole_number
from .._misc._errors import InputError, format_value, needing
from .._misc._files import AT_END, add_checksum, as_path, intact, replacing, require_there
from .._misc._jax_programs import nan_for_errors
from .._run._reports import COLUMNS
from .._run._results import RESULTS
from .._run._trajectory import Trajectory

_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
_PLACES = "jax_traceback_in_locations_limit"
_WRITTEN_BY = b"\nukjax_written_by "  # before the versions, behind all that JAX reads


def _as_dict(x: Trajectory) -> dict[str, Any]:
    columns = {name: getattr(x, name) for name in COLUMNS}
    ok = (x.result == RESULTS.successful) | (x.result == RESULTS.event_occurred)
    ends = {"t_end": x.t_end, "q_end": x.q_end, "v_end": x.v_end, "ok": ok}
    return {name: array for name, array in columns.items() if array is not None} | ends


def _shape(x: Any) -> jax.ShapeDtypeStruct:
    x = x if isinstance(x, jax.ShapeDtypeStruct) else number_array("each argument to export", x)
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _result(x: Any) -> Any:
    """A trajectory as a dict of its arrays; anything else as it is, which must be numbers."""
    return _as_dict(x) if isinstance(x, Trajectory) else number_array("what function returns", x)


def _versions() -> dict[str, str]:
    return {"ukjax": importlib.metadata.version("ukjax"), "jax": jax.__version__}


def _versions_in(content: bytes) -> str:
    """By what a file was written, in words; empty of one that does not say."""
    _, known, line = content.rpartition(_WRITTEN_BY)
    if not known:
        return ""
    of, here = json.loads(line), _versions()
    return (
        f" It was written by ukjax {of['ukjax']} with JAX {of['jax']}, and this is ukjax {here['ukjax']} with JAX "
        f"{here['jax']}: JAX reads files of its last six months, and none of later versions. Write it again here."
    )


@contextlib.contextmanager
def _without_places() -> Iterator[None]:
    """Has JAX leave out in which source files of this machine operations are: nobody who gets the file has them."""
    limit: int = getattr(jax.config, _PLACES)
    jax.config.update(_PLACES, 0)
    try:
        yield
    finally:
        jax.config.update(_PLACES, limit)


def _require_flatbuffers(feature: str) -> None:
    with needing(feature, "export"):
        import flatbuffers  # noqa: F401


def _find_callback(program: Any) -> str:
    """The user's line that calls back into Python, where it is known."""
    for equation in core_jaxpr(program).eqns:
        if equation.primitive.name.endswith("_callback"):
            return line_of(equation)
        if at := next(filter(None, map(_find_callback, jaxprs_in(equation.params))), ""):
            return at
    return ""


def export(
    function: Callable[..., Any],
    path: str | Path,
    *arguments: Any,
    platforms: Sequence[str] = ("cpu",),
    vjp_order: int = 0,
) -> Path:
    """Writes a function of arrays, such as a whole simulation, to a file: compiled by `jax.export` to StableHLO.

    What the function closes over (models, parameters, times) is in the file, and no path of this machine. It can be read
    with `load_exported`, or by JAX alone, with `jax.export.deserialize(bytearray(path.read_bytes())).call`, by the
    versions of JAX of the next six months at least; the file says which have written it. Checks by which Equinox or
    Diffrax would raise an error become NaN. The file ends in a checksum, which `load_exported` compares.

    **Arguments:**

    - `function`: made of JAX operations; its result is arrays, or containers of them. A `Trajectory` becomes a dict
      of its arrays, with `t_end`, `q_end` and `v_end`, and `ok` for whether the run reached its end.
    - `path`: the file to write.
    - `arguments`: arrays, or containers of them, of the shapes and types the file is to be called with. Their values
      do not matter; `jax.ShapeDtypeStruct` will do.
    - `platforms`: where the file is to run: of `"cpu"`, `"cuda"`, `"rocm"`, `"tpu"`. This machine need not have them.
    - `vjp_order`: how often the loaded function can be differentiated, in reverse mode.

    **Returns:** the path.

    **Raises:** `InputError` for a function that raises an error, returns no arrays or calls back into Python, and where
    the file cannot be written; `MissingExtraError` without flatbuffers.
    """
    _require_flatbuffers("export()")
    path = as_path("path", path)
    if not callable(function):
        raise InputError(f"function must be a function of arrays, got {format_value(function)}.")
    platforms = all_of("platforms", (platforms,) if isinstance(platforms, str) else platforms, str, "'cpu'")
    for platform in platforms:
        one_of("each of the platforms", platform, _PLATFORMS)
    vjp_order = whole_number("vjp_order", vjp_order, 0, 10)  # each derivative is in the file
    shapes = jax.tree.map(_shape, arguments)

    def run(*arrays: Any) -> Any:
        outputs = call_user_function("function", function, *arrays)
        return jax.tree.map(_result, outputs, is_leaf=lambda x: isinstance(x, Trajectory))

    with to_leave_process(), _without_places():
        program, made = jax.make_jaxpr(run, return_shape=True)(*shapes)
        compute = jaxpr_as_fun(nan_for_errors(program))

        def unwrapped(*arrays: Any) -> Any:
            return jax.tree.unflatten(jax.tree.structure(made), compute(*jax.tree.leaves(arrays)))

        unwrapped.__name__ = AT_END
        try:
            exported = jax.export.export(jax.jit(unwrapped), platforms=platforms)(*shapes)
            data = exported.serialize(vjp_order=vjp_order)
        except NotImplementedError as error:
            at = _find_callback(program)
            raise InputError(f"function cannot be exported: {error}{at and f' ({at})'}.") from error
    with replacing(path) as partial:
        partial.write_bytes(add_checksum(bytes(data) + _WRITTEN_BY + json.dumps(_versions()).encode()))
    return path


def load_exported(path: str | Path) -> Callable[..., Any]:
    """The function in a file that `export` wrote.

    **Arguments:**

    - `path`: the file.

    **Returns:** the function, compiled at its first call, for arguments of the shapes and types it was written for;
    it can be used within `jax.jit`, and differentiated if it was written so.

    **Raises:** `InputError` for a file that is none of `export` or is damaged, and for one in float64 where JAX's 64-bit
    types are off; when called, for other arguments than it was written for. `MissingExtraError` without flatbuffers.
    """
    _require_flatbuffers("load_exported()")
    path = as_path("path", path)
    require_there(path)
    content = intact(path)
    try:
        exported = jax.export.deserialize(bytearray(content))
    except Exception as error:  # whatever the parser stumbles on
        if of := _versions_in(content):
            raise InputError(f"JAX cannot read '{path}': {error!r}.{of}") from error
        raise InputError(f"'{path}' is not a file written by ukjax.export: {error!r}.") from error
    wide = any(x.dtype in (jnp.dtype("float64"), jnp.dtype("int64")) for x in exported.in_avals)
    if wide and not jax.config.read("jax_enable_x64"):
        raise InputError(
            f"{path} takes 64-bit arguments: first call jax.config.update('jax_enable_x64', True)."
        )
    return _wrap_exported(exported, path)


def _wrap_exported(exported: jax.export.Exported, path: Path) -> Callable[..., Any]:
    """The function, with an error in words for arguments it was not written for."""
    compiled = jax.jit(exported.call)
    takes = [f"{x.dtype} {x.shape}" for x in exported.in_avals]

    def run(*arguments: Any, **keywords: Any) -> Any:
        try:
            return compiled(*arguments, **keywords)
        except (
            TypeError,
            ValueError,
            OverflowError,
        ) as error:  # there is no Python in it that could raise them
            raise InputError(
                f"the function in '{path}' takes {len(takes)} arrays, {', '.join(takes)}: {error}"
            ) from error

    return run
