"""Machine code on disk: what was compiled once is read, and gives the same numbers."""

import ctypes
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from ukjax._compiler import _foreign

CODE = """declare double @twice(double)
declare double @sin(double)
define void @compute(ptr %x) {
  %given = load double, ptr %x
  %sine = call double @sin(double %given)
  %found = call double @twice(double %sine)
  store double %found, ptr %x
  ret void
}"""
BESIDE = """define double @twice(double %x) {
  %found = fadd double %x, %x
  ret double %found
}"""


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that LLVM compiles."""
    found, usual = list[str](), _foreign._compiled
    monkeypatch.setattr(_foreign, "_compiled", lambda *x: (found.append(x[0]), usual(*x))[1])
    return found


@pytest.fixture
def keep(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Has JAX keep in a folder what took so many seconds to compile."""
    names = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"
    before = [jax.config.values[name] for name in names]

    def set_to(*values: Any) -> None:
        for name, x in zip(names, values, strict=True):
            jax.config.update(name, x)

    yield set_to
    set_to(*before)


def doubled_sine(x: float) -> float:
    engine, number = _foreign.compiled(CODE, beside=BESIDE), np.array([x])
    compute = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine.get_function_address("compute"))
    compute(number.ctypes.data)
    return float(number[0])


def test_what_was_kept_is_read(tmp_path: Path, compilations: list[str], keep: Any) -> None:
    keep(str(tmp_path), 0)
    for _ in range(2):
        assert math.isclose(doubled_sine(0.3), 2 * math.sin(0.3), rel_tol=1e-15)
    assert len(compilations) == 1
    objects = list(tmp_path.rglob("*.o"))
    assert len(objects) == 2
    objects[0].unlink()  # as one who tidies up may
    assert math.isclose(doubled_sine(0.4), 2 * math.sin(0.4), rel_tol=1e-15)
    assert len(compilations) == 2


@pytest.mark.parametrize("least", [0, 1000])
def test_nothing_is_kept_where_nothing_is_to_be(
    tmp_path: Path, compilations: list[str], keep: Any, least: float
) -> None:
    """In a folder that cannot be made; or of what took less time than JAX is told to keep."""
    (tmp_path / "file").write_text("")
    keep(str(tmp_path if least else tmp_path / "file"), least)
    for _ in range(2):
        assert math.isclose(doubled_sine(0.3), 2 * math.sin(0.3), rel_tol=1e-15)
    assert len(compilations) == 2
    assert not list(tmp_path.rglob("*.o"))


def _halves_swapped(x: bytes) -> bytes:
    return x[len(x) // 2 :] + x[: len(x) // 2]


DAMAGE = {
    "empty": lambda x: b"",
    "cut": lambda x: x[: len(x) // 2],
    "cut by a byte": lambda x: x[:-1],
    "one bit": lambda x: x[: len(x) // 2] + bytes([x[len(x) // 2] ^ 1]) + x[len(x) // 2 + 1 :],
    "zeros at the end": lambda x: x[: len(x) // 2] + bytes(len(x) - len(x) // 2),
    "longer": lambda x: x + b"\0",
    "swapped": _halves_swapped,
    "no digest": lambda x: x[32:],
    "text": lambda x: b"no machine code",
}


def test_damaged_files_are_made_anew(tmp_path: Path, compilations: list[str], keep: Any) -> None:
    """LLVM takes what it is handed: of a damaged file the process would die."""
    keep(str(tmp_path), 0)
    doubled_sine(0.3)
    files = sorted(tmp_path.rglob("*.o"))
    whole = [x.read_bytes() for x in files]
    for i, damaged in enumerate(DAMAGE.values()):
        file = files[i % 2]
        file.write_bytes(damaged(file.read_bytes()))
        assert math.isclose(doubled_sine(0.3 + i), 2 * math.sin(0.3 + i), rel_tol=1e-14)
        assert len(compilations) == 2 + i
    files[0].write_bytes(whole[1])  # whole, but another's
    assert math.isclose(doubled_sine(0.3), 2 * math.sin(0.3), rel_tol=1e-15)
    assert [x.read_bytes() for x in files] == whole


def test_half_files_are_removed(
    tmp_path: Path, compilations: list[str], keep: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of processes that were killed, after an hour; and of a full disk at once."""
    keep(str(tmp_path), 0)
    folder = tmp_path / "machine_code"
    folder.mkdir()
    abandoned, current = folder / "a.1.1.partial", folder / "b.2.2.partial"
    for file in (abandoned, current):
        file.write_bytes(b"half")
    os.utime(abandoned, (time.time() - 7200,) * 2)

    def full(path: Path, contents: bytes) -> None:
        with path.open("wb") as file:
            file.write(contents[:10])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        assert math.isclose(doubled_sine(0.3), 2 * math.sin(0.3), rel_tol=1e-15)
    assert list(folder.iterdir()) == [current]
    for _ in range(2):
        assert math.isclose(doubled_sine(0.3), 2 * math.sin(0.3), rel_tol=1e-15)
    assert len(compilations) == 2
