"""Sweeps that are killed: what was done stays, what was not is done, and the result is the same to the last bit."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import ukjax as uk
from ukjax._sweep._status import status

SWEEP = """
import sys
import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import ukjax as uk

jax.config.update("jax_enable_x64", True)

def chaotic(start, rate):  # every rounding error shows
    x = jax.lax.fori_loop(0, 100_000, lambda i, x: rate * x * (1 - x), start)
    return {"end": x, "many": jnp.linspace(x, 1 - x, 50)}

jax.jit(jnp.sin)(1.0).block_until_ready()
print("ready", flush=True)
params = {"start": np.linspace(0.1, 0.9, 30), "rate": np.linspace(3.6, 4.0, 101)}
uk.sweep(chaotic, params, chunk=37, store=sys.argv[1], progress=False)
print("done", flush=True)
"""


def child(script: Path, store: Path) -> subprocess.Popen:
    process = subprocess.Popen([sys.executable, script, store], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def contents(store: Path) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


def done(store: Path) -> dict[str, int]:
    """When each chunk of results was written."""
    found = (path for path in store.glob("result/c/*/*") if path.suffix != ".partial")
    return {str(path.relative_to(store)): path.stat().st_mtime_ns for path in found}


def killed_and_resumed(tmp_path: Path, kills: int) -> None:
    script = tmp_path / "runs.py"
    script.write_text(SWEEP)
    whole, store = tmp_path / "whole.zarr", tmp_path / "killed.zarr"
    assert child(script, whole).wait() == 0
    rng, written = random.Random(0), {}
    for _ in range(kills):
        process = child(script, store)
        enough = len(written) + rng.randint(0, len(done(whole)) // (kills + 1))
        while len(done(store)) < enough:
            assert process.poll() is None
        time.sleep(rng.uniform(0, 0.02))
        process.kill()
        assert process.wait() == -signal.SIGKILL
        written |= {name: moment for name, moment in done(store).items() if name not in written}
    assert written.keys() < done(whole).keys()
    assert child(script, store).wait() == 0
    assert contents(store) == contents(whole)
    after = done(store)
    assert {name: after[name] for name in written} == written, "runs that were done were made again"


@pytest.mark.slow
def test_killed_twice(tmp_path: Path) -> None:
    killed_and_resumed(tmp_path, 2)


@pytest.mark.slow
def test_killed_ten_times(tmp_path: Path) -> None:
    killed_and_resumed(tmp_path, 10)


def product(a, b):
    return {"product": a * b, "sine": jnp.sin(a)}


PARAMS = {"a": np.linspace(0.1, 1.0, 7), "b": np.array([1.0, 2.0, 3.0])}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    uk.sweep(product, PARAMS, chunk=3, store=tmp_path / "runs.zarr")
    return tmp_path / "runs.zarr"


def stop_after(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets so many blocks through, then fails within the writing of the next."""
    from ukjax._sweep import _store

    write, written = _store.AbstractTarget.write, []

    def failing(self, number, values):
        if len(written) == count:
            self.arrays["product"][self.chunks.region(number)] = values["product"]
            raise KeyboardInterrupt
        written.append(number)
        write(self, number, values)

    monkeypatch.setattr(_store.AbstractTarget, "write", failing)


@pytest.mark.parametrize("count", [0, 1, 6])
def test_interrupted_anywhere(
    store: Path, tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.zarr"
    with monkeypatch.context() as patch:
        stop_after(count, patch)
        with pytest.raises(KeyboardInterrupt):
            uk.sweep(product, PARAMS, chunk=3, store=other)
    partly = xr.open_zarr(other, consolidated=False)
    assert int((partly.result == -1).sum()) == 21 - 3 * count
    (other / "product" / "c" / "0").mkdir(parents=True, exist_ok=True)
    (other / "product" / "c" / "0" / "0.1a2b.partial").write_bytes(b"torn")
    uk.sweep(product, PARAMS, store=other)  # the chunk is that of the store
    assert contents(other) == contents(store)


def vanish(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    """One bit near the end, in the numbers themselves where zstd found nothing to compress."""
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)


SPOILT = ["product/c/2/0", "result/c/2/0", "processor/c/2/0", "failing/c/3/0/0", "a/c/0", "product/zarr.json"]


@pytest.mark.parametrize("damage", [vanish, empty, flip])
def test_files_that_a_finished_store_lost_are_made_again(tmp_path: Path, damage) -> None:
    """Zarr reads a missing file as NaN, whatever `result` says."""

    def model(a, b):
        return {
            "product": a * b,
            "failing": jnp.full(4, jnp.sqrt(-a)),
        }  # a file of NaN alone is not a missing one

    path = tmp_path / "runs.zarr"
    whole = uk.sweep(model, PARAMS, chunk=3, store=path).load()
    files = contents(path)
    for name in SPOILT:
        damage(path / name)
        if name == "product/zarr.json":
            with pytest.raises(uk.InputError, match="lost the description of an array"):
                status(path)
        else:
            assert status(path)["chunks_made"] == (7 if name.startswith("a") else 6), name
        again = uk.sweep(model, PARAMS, chunk=3, store=path)
        assert contents(path) == files, name
        xr.testing.assert_identical(again.load(), whole)
    np.testing.assert_array_equal(whole["product"], np.multiply.outer(PARAMS["a"], PARAMS["b"]))


def test_only_what_was_lost_is_made_again(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ukjax._sweep import _store

    written, write = [], _store.AbstractTarget.write
    monkeypatch.setattr(
        _store.AbstractTarget,
        "write",
        lambda self, number, x: (written.append(number), write(self, number, x)),
    )
    vanish(store / "sine" / "c" / "4" / "0")
    uk.sweep(product, PARAMS, chunk=3, store=store)
    assert written == [4]


def test_a_store_reads_back_as_what_memory_has(store: Path) -> None:
    resumed = uk.sweep(product, PARAMS, chunk=3, store=store)
    in_memory = uk.sweep(product, PARAMS, chunk=3)
    assert resumed.attrs.pop("program")
    xr.testing.assert_identical(resumed.load(), in_memory)
    xr.testing.assert_equal(xr.open_zarr(store, consolidated=False)[list(in_memory)].load(), in_memory)


def test_what_was_done_is_not_compiled_again(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ukjax._sweep import _chunk

    monkeypatch.setattr(_chunk, "compile_batch", None)
    assert uk.sweep(product, PARAMS, chunk=3, store=store).sizes == {"a": 7, "b": 3}


@pytest.mark.slow
def test_what_was_traced_elsewhere_does_not_matter(tmp_path: Path) -> None:
    def end(start):
        system, x = uk.System(jnp.eye(1), jnp.zeros(1)), start[None]
        return uk.simulate(system, x, x, t1=1.0, dt0=0.5, ts=2, solver=dfx.Euler()).q[-1]

    first = uk.sweep(end, {"start": [1.0, 2.0]}, store=tmp_path / "runs.zarr")
    jax.clear_caches()
    end(jnp.asarray(1.0))  # leaves traces of simulate with checks by host callbacks
    again = uk.sweep(end, {"start": [1.0, 2.0]}, store=tmp_path / "runs.zarr")
    xr.testing.assert_identical(again.load(), first.load())


OTHERS = {
    "values": (product, PARAMS | {"a": np.linspace(0.1, 2.0, 7)}, {}, "values (there"),
    "size": (product, PARAMS | {"a": np.linspace(0.1, 1.0, 8)}, {}, "runs (there 21, here 24)"),
    "names": (lambda b, a, c: {"product": a * b, "sine": c}, PARAMS | {"c": [1.0]}, {}, "parameters (there"),
    "outputs": (product, PARAMS, {"outputs": ["sine"]}, "outputs (there"),
    "gradients": (product, PARAMS, {"gradients": "sine"}, "outputs (there"),
    "chunk": (product, PARAMS, {"chunk": 6}, "chunk (there [1, 3], here [2, 3])"),
}


@pytest.mark.parametrize(("model", "params", "options", "words"), OTHERS.values(), ids=OTHERS)
def test_a_store_of_another_sweep_is_refused(store: Path, model, params, options, words: str) -> None:
    before = contents(store)
    with pytest.raises(uk.InputError, match="is the store of another sweep") as raised:
        uk.sweep(model, params, store=store, **options)
    assert words in str(raised.value)
    assert contents(store) == before
    replaced = uk.sweep(model, params, store=store, overwrite=True, **options)
    assert not np.any(replaced.result == -1)


def test_a_model_that_was_edited_is_refused(store: Path) -> None:
    def product(a, b):
        return {"product": a * b, "sine": jnp.sin(a) + 1e-9}

    with pytest.raises(uk.InputError, match="the code of the model, or a constant in it"):
        uk.sweep(product, PARAMS, store=store)


def test_a_table_that_was_edited_is_refused(tmp_path: Path) -> None:
    """An array in the model, of numbers that MLIR writes as one string of hexadecimal digits."""

    def model(entries):
        table = jnp.asarray(np.array(entries * 100))
        return lambda a: {"sum": jnp.sum(a * table)}

    params, path = {"a": [1.0, 2.0]}, tmp_path / "runs.zarr"
    uk.sweep(model([2.0, 3.0]), params, store=path)
    with pytest.raises(uk.InputError, match="the code of the model, or a constant in it"):
        uk.sweep(model([4.0, 5.0]), params, store=path)
    again = uk.sweep(model([4.0, 5.0]), params, store=path, overwrite=True)
    np.testing.assert_array_equal(again["sum"], [900.0, 1800.0])


PROGRAM = """
import sys
import jax
import jax.numpy as jnp
import numpy as np
import ukjax as uk

jax.config.update("jax_enable_x64", True)
exec(sys.stdin.read())
"""

SWEEPS = """
def twice(x):
    y = jax.pure_callback(lambda a: 2 * np.asarray(a), jax.ShapeDtypeStruct((), x.dtype), x, vmap_method="sequential")
    return {"y": y + jnp.arange(100.0).sum()}

runs = uk.sweep(twice, {"x": [1.0, 2.0]}, store=sys.argv[1] + "/calling.zarr")
print(runs.attrs["program"])
runs = uk.sweep(uk.models.pendulum, {"gravity": [9.0, 9.5]}, t1=0.1, store=sys.argv[1] + "/scalar.zarr")
print(runs.attrs["program"])
"""


def test_two_processes_make_one_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where one has stored, the other, with other hashes and addresses, goes on: also where Python is called back."""
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path)])
    exec(SWEEPS, {"sys": sys, "jax": jax, "jnp": jnp, "np": np, "uk": uk})
    command, env = [sys.executable, "-c", PROGRAM, str(tmp_path)], os.environ | {"PYTHONHASHSEED": "1"}
    done = subprocess.run(command, input=SWEEPS, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    found = done.stdout.split()
    assert found == capsys.readouterr().out.split()
    assert len(found) == 2


def test_what_is_no_store_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(uk.InputError, match="no sweep made it"):
            uk.sweep(product, PARAMS, store=tmp_path / "mine", overwrite=overwrite)
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_two_processes_do_not_write_to_one_store(store: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    with (store / "zarr.json").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        before = contents(store)
        for overwrite in (False, True):
            with pytest.raises(uk.InputError, match="another process is writing"):
                uk.sweep(product, PARAMS, store=store, overwrite=overwrite)
        assert contents(store) == before
        assert [path.name for path in store.parent.iterdir()] == [store.name]
    replaced = uk.sweep(product, PARAMS, store=store, overwrite=True)  # the lock went with the file
    assert not np.any(replaced.result == -1)


def test_a_store_that_replaces_another_is_locked(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fcntl")
    from ukjax._sweep import _place, _store

    write = _store.AbstractTarget.write

    def writing(self, number, values):
        with pytest.raises(uk.InputError, match="another process is writing"):
            _place.LocalFolder(store).locked()
        write(self, number, values)

    monkeypatch.setattr(_store.AbstractTarget, "write", writing)
    uk.sweep(product, PARAMS, store=store, overwrite=True)
