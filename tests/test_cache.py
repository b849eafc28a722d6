"""What is kept on disk: compiled once, it is read by other processes, and gives the same numbers; or it is not used."""

import ctypes
import dataclasses
import functools
import math
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._compiler import _foreign, _machine_code
from ukjax._compiler._structured import _identity, _program
from ukjax._misc import _cache as cache
from ukjax._misc._compilation_cache import use_compilation_cache

CODE = _machine_code.Code(
    """declare double @twice(double)
declare double @sin(double)
define void @compute(ptr %x) {
  %given = load double, ptr %x
  %sine = call double @sin(double %given)
  %found = call double @twice(double %sine)
  store double %found, ptr %x
  ret void
}""",
    beside="""define double @twice(double %x) {
  %found = fadd double %x, %x
  ret double %found
}""",
)


@dataclasses.dataclass
class Made:
    """How often something was done."""

    compiled: int = 0
    traced: int = 0
    written: int = 0


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    """What of it is done in this process."""
    found = Made()

    def counted(of: Any, name: str, field: str) -> None:
        usual = getattr(of, name)

        def counting(*args: Any, **kwargs: Any) -> Any:
            setattr(found, field, getattr(found, field) + 1)
            return usual(*args, **kwargs)

        monkeypatch.setattr(of, name, counting)

    counted(_machine_code, "_compile_objects", "compiled")
    counted(_program, "_translate_jaxpr", "traced")
    counted(_program, "write_function", "written")
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where files are kept: it is not there yet."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "kept"))
    return tmp_path / "kept" / "programs"


def doubled_sine(x: float) -> float:
    engine, number = _foreign.compile_engine(lambda: CODE, None), np.array([x])
    compute = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine.get_function_address("compute"))
    compute(number.ctypes.data)
    return float(number[0])


def is_right(x: float) -> bool:
    return math.isclose(doubled_sine(x), 2 * math.sin(x), rel_tol=1e-14)


def test_what_was_kept_is_read(folder: Path, made: Made) -> None:
    assert is_right(0.3)
    assert is_right(0.4)
    assert made.compiled == 1
    (file,) = folder.iterdir()
    file.unlink()  # as one who tidies up may
    assert is_right(0.5)
    assert made.compiled == 2
    for path in (file, folder):
        (path.unlink if path is file else path.rmdir)()
    assert is_right(0.6)
    assert list(folder.iterdir()) == [file]


@pytest.mark.parametrize("off", ["0", "off"])
def test_nothing_is_kept_where_nothing_is_to_be(
    off: str, tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setenv(cache.VARIABLE, off)
    assert is_right(0.3)
    assert is_right(0.4)
    assert made.compiled == 2
    assert list(tmp_path.iterdir()) == []


def test_by_default_it_is_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of XDG's specification on Linux; nobody else may write there, however the process makes files."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv(cache.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    before = os.umask(0)
    try:
        assert is_right(0.3)
    finally:
        os.umask(before)
    folder = tmp_path / "home" / "ukjax" / "programs"
    (file,) = folder.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert file.stat().st_mode & 0o777 == 0o600


# --- who else may write there


def _by_group(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.chmod(0o770)


def _by_all(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.chmod(0o777)


def _of_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)


@pytest.mark.parametrize(
    ("change", "said"),
    [(_by_group, "written to by others"), (_by_all, "written to by others"), (_of_another, "another user")],
)
def test_a_folder_that_is_not_ones_own_is_not_used_and_that_is_said_once(
    change: Callable[..., None], said: str, folder: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir(parents=True)
    change(folder, monkeypatch)
    with pytest.warns(uk.CacheWarning, match=f"{said}.*UKJAX_CACHE") as told:
        assert all(map(is_right, (0.3, 0.4)))
    assert len(told) == 1
    assert made.compiled == 2
    assert list(folder.iterdir()) == []


def test_jax_keeps_nothing_either_in_a_folder_that_others_may_write_to(folder: Path) -> None:
    folder.parent.mkdir()
    folder.parent.chmod(0o777)
    told = jax.config.values["jax_compilation_cache_dir"]
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        with pytest.warns(uk.CacheWarning, match="written to by others"):
            use_compilation_cache()
        assert jax.config.values["jax_compilation_cache_dir"] is None
    finally:
        jax.config.update("jax_compilation_cache_dir", told)


def test_a_folder_that_cannot_be_made_is_said_once(folder: Path, made: Made) -> None:
    folder.parent.write_text("a file")
    with pytest.warns(uk.CacheWarning, match="cannot be made") as told:
        assert all(map(is_right, (0.3, 0.4)))
    assert (len(told), made.compiled) == (1, 2)


def test_a_file_that_others_may_write_to_is_not_read(folder: Path, made: Made) -> None:
    assert is_right(0.3)
    (file,) = folder.iterdir()
    file.chmod(0o666)
    assert is_right(0.4)
    assert made.compiled == 2
    assert file.stat().st_mode & 0o777 == 0o600  # written anew


# --- damage


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda x: b"",
    "cut": lambda x: x[: len(x) // 2],
    "cut by a byte": lambda x: x[:-1],
    "one bit": lambda x: x[: len(x) // 2] + bytes([x[len(x) // 2] ^ 1]) + x[len(x) // 2 + 1 :],
    "zeros at the end": lambda x: x[: len(x) // 2] + bytes(len(x) - len(x) // 2),
    "longer": lambda x: x + b"\0",
    "swapped": lambda x: x[len(x) // 2 :] + x[: len(x) // 2],
    "no digest": lambda x: x[32:],
    "text": lambda x: b"no machine code",
}


def test_damaged_files_are_made_anew(folder: Path, made: Made) -> None:
    """LLVM takes what it is handed: of a damaged file the process would die."""
    doubled_sine(0.3)
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    for i, damaged in enumerate(DAMAGE.values()):
        file.write_bytes(damaged(whole))
        assert is_right(0.3 + i)
        assert made.compiled == 2 + i
        assert file.read_bytes() == whole
    cache.write("another", [b"no machine code"])
    (folder / "another.kept").replace(file)  # whole, but another's
    assert is_right(0.3)
    assert file.read_bytes() == whole


def test_half_files_are_removed(
    folder: Path, made: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those of processes that were killed, after an hour; and of a full disk at once."""
    folder.mkdir(mode=0o700, parents=True)
    abandoned, current = folder / "a.partial", folder / "b.partial"
    for file in (abandoned, current):
        file.write_bytes(b"half")
    os.utime(abandoned, (time.time() - 7200,) * 2)
    monkeypatch.setattr(cache, "_written", 0)  # as in a process that starts

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        assert is_right(0.3)
    assert list(folder.iterdir()) == [current]
    assert is_right(0.3)
    assert is_right(0.3)
    assert made.compiled == 2


KILLED = """
import os, signal
import ukjax._misc._cache as cache
usual = os.replace
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
cache.write("name", [bytes(10_000)])
"""


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="signals are those of POSIX")
def test_a_killed_writer_leaves_nothing_that_is_read(folder: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED], check=False, timeout=60)
    assert killed.returncode == -9
    assert [x.suffix for x in folder.iterdir()] == [".partial"]
    assert cache.read("name") is None
    cache.write("name", [b"whole"])
    assert cache.read("name") == [b"whole"]


def test_many_writers_and_readers_at_once(folder: Path) -> None:
    """Whatever is read is whole."""
    contents = [bytes([i]) * 100_000 for i in range(8)]

    def use(i: int) -> bool:
        cache.write("name", [contents[i]])
        found = cache.read("name")
        return found is not None and found[0] in contents

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(use, [i % 8 for i in range(200)]))
    assert [x.name for x in folder.iterdir()] == ["name.kept"]


# --- its size


def test_what_was_not_used_for_longest_goes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MOST_BYTES", 10_000)
    start = time.time() - 90_000
    for i in range(9):
        cache.write(str(i), [bytes(1000)])
        os.utime(folder / f"{i}.kept", (start + i,) * 2)
    assert cache.read("0") == [bytes(1000)]  # used now
    cache.tidy(folder.parent)
    assert len(list(folder.iterdir())) == 9
    cache.write("9", [bytes(1000)])
    cache.tidy(folder.parent)  # more than 10,000 bytes with digests and lengths: a quarter goes
    assert sorted(x.stem for x in folder.iterdir()) == ["0", "4", "5", "6", "7", "8", "9"]
    assert cache.size(folder.parent)[1] <= 7500


def test_a_process_looks_at_the_size_as_it_begins_and_then_now_and_then(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = list[Path]()
    monkeypatch.setattr(cache, "tidy", lambda root: looks.append(root))
    monkeypatch.setattr(cache, "_written", 0)
    monkeypatch.setattr(cache, "_BETWEEN_LOOKS", 100_000)
    for i in range(250):
        cache.write(str(i), [bytes(1000)])
    assert len(looks) == 3


def test_what_xla_compiled_is_counted_in_the_same_folder(folder: Path) -> None:
    """Where JAX keeps it there, as the command line has it."""
    cache.write("own", [bytes(1000)])
    for name in ("jit_f-0-cache", "jit_f-0-atime", "of others"):
        (folder.parent / name).write_bytes(bytes(8))
    assert cache.size(folder.parent)[0] == 2
    cache.clear(folder.parent)
    assert sorted(x.name for x in folder.parent.iterdir()) == ["of others", "programs"]


# --- programs of scalars


def newton(a: Any, factor: float = 1.0) -> Any:
    """A square root by a loop whose end is found as it runs."""
    step = lambda x: 0.5 * (x + factor * a / x)
    return jax.lax.while_loop(lambda x: jnp.abs(x * x - factor * a) > 1e-12, step, a)


@pytest.fixture
def registered_before() -> Iterator[dict[str, Any]]:
    """What XLA may call as long as the process lives, whatever a test forgets."""
    before = dict(_foreign._made)
    yield before
    _foreign._made.update(before)


def test_a_program_that_was_kept_is_neither_built_nor_written(
    folder: Path, made: Made, registered_before: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The value, a derivative in either mode and a batch. What was traced by JAX is, for it tells which program it is."""
    register = jax.ffi.register_ffi_target

    def register_once(name: str, *args: Any, **kwargs: Any) -> None:
        if name not in registered_before:  # XLA takes a name once in a process
            register(name, *args, **kwargs)

    monkeypatch.setattr(jax.ffi, "register_ffi_target", register_once)
    found = []
    for _ in range(2):
        jax.clear_caches()
        registered_before.update(_foreign._made)
        _foreign._made.clear()  # as in another process
        root = uk.scalarize(newton)
        found.append(
            [
                float(root(2.0)),
                float(jax.grad(root)(2.0)),
                float(jax.jvp(root, (2.0,), (1.0,))[1]),
                float(jax.hessian(root)(2.0)),
                *jax.vmap(root)(jnp.array([2.0, 3.0, 5.0])).tolist(),
            ]
        )
        done = dataclasses.replace(made)
        made.compiled = made.traced = made.written = 0
        if len(found) == 1:
            assert min(done.compiled, done.traced, done.written) > 0
        else:
            assert done == Made()
    slope = 0.5 / math.sqrt(2)
    right = [math.sqrt(2), slope, slope, -0.25 / 2**1.5, *map(math.sqrt, (2.0, 3.0, 5.0))]
    np.testing.assert_allclose(found[0], right, rtol=1e-9)
    assert found[0] == found[1]


ANOTHER = """
import sys
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
import ukjax as uk
from ukjax._compiler import _machine_code
from ukjax._compiler._structured import _program
done = []
for of, name in ((_machine_code, "_compile_objects"), (_program, "_translate_jaxpr"), (_program, "write_function")):
    usual = getattr(of, name)
    setattr(of, name, lambda *a, usual=usual, name=name: (done.append(name), usual(*a))[1])
run = lambda angle: uk.simulate(uk.models.pendulum(angle=angle), t1=0.5, event=lambda t, q, v: q[0]).q_end[1]
print(len(done), float(run(0.4)), len(done))
"""


@pytest.mark.slow
def test_another_process_compiles_nothing_of_a_run_that_is_known(folder: Path) -> None:
    told = []
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, "-c", ANOTHER], capture_output=True, text=True, timeout=300, check=True
        )
        told.append(run.stdout.split())
    assert told[0][1] == told[1][1]
    assert int(told[0][2]) > 0
    assert int(told[1][2]) == 0


def told_as(fn: Callable[..., Any], *args: Any, order: int = 0) -> str | None:
    closed = jax.make_jaxpr(fn)(*args)
    return _identity.identity(closed.jaxpr, closed.consts, order)


X = jnp.arange(1.0, 4.0)
MATRIX = jnp.arange(9.0).reshape(3, 3)


def _ruled(slope: float) -> Callable[[Any], Any]:
    """A sine whose derivative is said to be another."""

    @jax.custom_jvp
    def f(x: Any) -> Any:
        return jnp.sin(x)

    f.defjvp(lambda primals, tangents: (f(*primals), slope * tangents[0]))
    return f


def _ruled_twice(slope: float) -> Callable[[Any], Any]:
    """The same one derivative further."""

    @jax.custom_jvp
    def f(x: Any) -> Any:
        return jnp.sin(x)

    f.defjvp(lambda primals, tangents: (f(*primals), _ruled(slope)(primals[0]) * tangents[0]))
    return f


DIFFERENT: dict[str, list[Callable[..., Any]]] = {
    "operation": [jnp.sin, jnp.cos],
    "constant": [lambda x: x * 2.0, lambda x: x * 2.0000000000000004],
    "sign of zero": [lambda x: x / 0.0, lambda x: x / -0.0],
    "not a number": [lambda x: x + math.nan, lambda x: x + math.inf],
    "array": [lambda x: x + np.array([1.0, 2.0, 3.0]), lambda x: x + np.array([1.0, 2.0, 4.0])],
    "long array": [lambda x, k=k: x.sum() + np.where(np.arange(500) == k, 1.0, 0.0) for k in range(2)],
    "order of operands": [lambda x: x[0] - x[1], lambda x: x[1] - x[0]],
    "axes": [lambda x: MATRIX.T @ x, lambda x: MATRIX @ x],
    "slice": [lambda x: x[:2].sum(), lambda x: x[1:].sum()],
    "index": [lambda x: x[jnp.argmax(x)], lambda x: x[jnp.argmin(x)]],
    "power": [lambda x: x**2, lambda x: x**3],
    "type": [lambda x: x.astype(jnp.float32), lambda x: x.astype(jnp.int32)],
    "output": [lambda x: (x, x + 1), lambda x: (x + 1, x)],
    "inner function": [jax.jit(lambda x: x + 1), jax.jit(lambda x: x + 2)],
    "loop": [lambda x, k=k: jax.lax.while_loop(lambda y: y[0] < k, lambda y: y + 1, x) for k in (5, 6)],
    "body": [lambda x, k=k: jax.lax.while_loop(lambda y: y[0] < 9, lambda y: y + k, x) for k in (1, 2)],
    "scan": [lambda x, k=k: jax.lax.scan(lambda c, _: (c * 1.5, None), x, length=k)[0] for k in (5, 6)],
    "direction": [
        lambda x, k=k: jax.lax.scan(lambda c, y: (2 * c + y, None), 0.0, x, reverse=k)[0] for k in (True, False)
    ],
    "branch": [
        lambda x, k=k: jax.lax.cond(x[0] > 0, lambda x: x + k, lambda x: x - k, x) for k in (1.0, 2.0)
    ],
    "factors": [lambda x: jnp.linalg.solve(MATRIX + jnp.diag(x), x), lambda x: jnp.linalg.inv(MATRIX) @ x],
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_function_that_changes_is_another_program(name: str) -> None:
    told = [told_as(fn, X) for fn in DIFFERENT[name]]
    assert None not in told
    assert len(set(told)) == len(told)


def test_shapes_types_and_precision_make_another_program() -> None:
    given = [X, X[:2], X.astype(jnp.float32), X[None], 1.0, jnp.float64(1.0)]
    assert len({told_as(jnp.sin, x) for x in given}) == len(given)


def test_the_same_function_is_the_same_program_wherever_it_is_in_memory() -> None:
    """Also where parts of it are functions, and whatever they are called."""

    def make(name: str) -> Callable[[Any], Any]:
        inner = functools.partial(jnp.add, 1.0)
        inner.__name__ = name  # type: ignore[attr-defined]
        return lambda x: _ruled(3.0)(jax.jit(inner)(x)) + jax.nn.relu(x)

    for order in range(3):
        assert told_as(make("a"), X, order=order) == told_as(make("b"), X, order=order) is not None


def test_rules_for_derivatives_count_from_the_order_on_that_uses_them() -> None:
    for rule, first in ((_ruled, 1), (_ruled_twice, 2)):
        for order in range(4):
            same = told_as(rule(1.0), X, order=order) == told_as(rule(2.0), X, order=order)
            assert same == (order < first)


def test_a_rule_that_changes_is_not_taken_from_what_was_kept(folder: Path) -> None:
    for slope in (3.0, 4.0, 3.0):
        assert float(jax.grad(uk.scalarize(_ruled(slope)))(0.5)) == slope
        assert float(jax.jvp(uk.scalarize(_ruled(slope)), (0.5,), (2.0,))[1]) == 2 * slope


def test_what_is_given_as_an_operand_does_not_count(folder: Path, made: Made) -> None:
    """A long array that a function closes over is read from memory."""
    for k in range(2):
        table = jnp.arange(2000.0) + k
        found = uk.scalarize(lambda i, table=table: table[i] * 2)(jnp.int32(7))
        assert float(found) == 2 * (7 + k)
    assert made.traced == 1


def test_operations_of_others_are_not_kept(folder: Path, made: Made) -> None:
    """What they compute in Python may change and nobody knows."""
    from jax.extend.core import Primitive

    own = Primitive("own")
    own.def_impl(lambda x: x * 3.0)
    own.def_abstract_eval(lambda x: x)
    assert told_as(own.bind, 1.0) is None
    for k in (1, 2):
        assert float(uk.scalarize(lambda x: own.bind(x))(2.0)) == 6.0
        assert made.traced == k


def test_checks_within_a_program_are_known(folder: Path) -> None:
    checked = lambda x: eqx.error_if(x, x < 0, "negative")
    assert told_as(checked, 1.0) is not None
    assert float(uk.scalarize(checked)(2.0)) == 2.0


def test_nothing_is_said_of_a_folder_that_is_right(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert is_right(0.3)
