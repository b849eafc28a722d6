"""Sweeps on workers: the bytes of a sweep in one process, whatever dies in between."""

import contextlib
import errno
import functools
import json
import logging
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import swept
import xarray as xr
from swept import PARAMS, chaotic, linear
from typer.testing import CliRunner

import ukjax as uk
from ukjax._cli import _commands as cli
from ukjax._sweep import _lease, _place, _run, _status, _store

CHUNKS = 12
FEW = PARAMS | {"start": PARAMS["start"][:3]}  # of stores at a URL, where a chunk is dozens of requests
LINE = {"x": np.arange(10.0)}


def contents(store: Path) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


def done(store: Path) -> dict[str, int]:
    """When each chunk of results was written."""
    found = (path for path in store.glob("result/c/**/*") if path.is_file() and path.suffix != ".partial")
    return {str(path.relative_to(store)): path.stat().st_mtime_ns for path in found}


def spawned() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))


@pytest.fixture(scope="module")
def pool():
    with spawned() as pool:
        yield pool


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process makes."""
    store = tmp_path_factory.mktemp("whole") / "runs.zarr"
    uk.sweep(chaotic, PARAMS, chunk=11, store=store)
    return store


def test_a_pool_of_processes_writes_the_same_bytes(pool, whole: Path, tmp_path: Path, caplog) -> None:
    with caplog.at_level(logging.INFO, "ukjax"):
        runs = uk.sweep(chaotic, PARAMS, chunk=11, store=tmp_path / "runs.zarr", executor=pool)
    assert re.search(r"chaotic: 132 of 132 runs, .* 0 failed, 2 workers", caplog.text)
    assert contents(tmp_path / "runs.zarr") == contents(whole)
    assert len(done(whole)) == CHUNKS
    xr.testing.assert_identical(runs.load(), xr.open_zarr(whole)[list(runs)].load())


def test_the_callers_precision(pool, tmp_path: Path) -> None:
    with jax.enable_x64(False):
        uk.sweep(chaotic, PARAMS, chunk=33, store=tmp_path / "one.zarr")
        runs = uk.sweep(chaotic, PARAMS, chunk=33, store=tmp_path / "runs.zarr", executor=pool)
    assert runs.end.dtype == np.float32
    assert contents(tmp_path / "runs.zarr") == contents(tmp_path / "one.zarr")


@pytest.mark.parametrize(
    ("memory", "size", "executor"),
    [
        pytest.param(1e9, 2, ThreadPoolExecutor(2), id="threads", marks=pytest.mark.slow),
        pytest.param(1.5e3, 1, None, id="processes"),
    ],
)
def test_chunks_of_a_mechanism_are_many_and_fit_the_memory(
    memory: float, size: int, executor, pool, tmp_path: Path
) -> None:
    params, options = {"angle": np.linspace(0.1, 1.0, 110)}, {"t1": 0.1, "ts": 3, "outputs": "q_end"}
    settings = {"memory": memory, "store": tmp_path / "runs.zarr", "executor": executor or pool}
    runs = uk.sweep(uk.models.pendulum, params, **settings, **options)
    assert runs.attrs["chunk"] == [size]
    uk.sweep(uk.models.pendulum, params, store=tmp_path / "one.zarr", chunk=size, **options)
    assert contents(tmp_path / "runs.zarr") == contents(tmp_path / "one.zarr")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["loky", "ray"])
def test_other_executors(kind: str, whole: Path, tmp_path: Path) -> None:
    package = pytest.importorskip(kind)
    executor = functools.partial(package.get_reusable_executor, 2) if kind == "loky" else "local"
    cloudpickle.register_pickle_by_value(swept)  # Ray's workers do not find the folder of tests
    try:
        uk.sweep(chaotic, PARAMS, chunk=11, store=tmp_path / "runs.zarr", executor=executor)
    finally:
        cloudpickle.unregister_pickle_by_value(swept)
    assert contents(tmp_path / "runs.zarr") == contents(whole)


@pytest.mark.slow
def test_dask_goes_on_when_a_worker_is_killed(whole: Path, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    store = tmp_path / "runs.zarr"
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster) as client:
        victim = client.run(os.getpid)
        killer = threading.Thread(target=kill_after, args=(store, 2, next(iter(victim.values()))))
        killer.start()
        uk.sweep(chaotic, PARAMS, chunk=11, store=store, executor=client)
        killer.join()
        assert contents(store) == contents(whole)
        shutil.rmtree(store / "result" / "c" / "3")
        uk.sweep(chaotic, PARAMS, chunk=11, store=store, executor=cluster.scheduler_address)
        uk.sweep(chaotic, PARAMS, chunk=11, store=store, executor=client.get_executor(), overwrite=True)
        assert client.status == "running"
    assert contents(store) == contents(whole)


def kill_after(store: Path, chunks: int, process: int) -> None:
    while len(done(store)) < chunks:
        time.sleep(0.001)
    os.kill(process, signal.SIGKILL)


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_pool_that_breaks_is_made_again(processes: int, whole: Path, tmp_path: Path) -> None:
    """A killed process takes its whole pool with it; what was done before is not done again."""
    store, written = tmp_path / "runs.zarr", {}
    others = {x.pid for x in multiprocessing.active_children()}

    def kill() -> None:
        while len(done(store)) < 2:
            time.sleep(0.001)
        kill_after(store, 2, next(x.pid for x in multiprocessing.active_children() if x.pid not in others))
        written.update(done(store))

    killer = threading.Thread(target=kill)
    killer.start()
    uk.sweep(chaotic, PARAMS, chunk=11, store=store, executor=processes)
    killer.join()
    assert contents(store) == contents(whole)
    after = done(store)
    assert len(written) >= 2
    assert {name: after[name] for name in written} == written


DRIVER = """
import sys
import jax
import ukjax as uk
from swept import PARAMS, chaotic

if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    uk.sweep(chaotic, PARAMS, chunk=11, store=sys.argv[1], executor=2)
"""


def children(process: int) -> list[int]:
    found = Path(f"/proc/{process}/task/{process}/children")
    return [int(x) for x in found.read_text().split()] if found.exists() else []


@pytest.mark.slow
def test_a_driver_that_is_killed_goes_on_when_started_again(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "driver.py").write_text(DRIVER)
    command = [sys.executable, str(tmp_path / "driver.py"), str(tmp_path / "runs.zarr")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    driver = subprocess.Popen(command, env=environment)
    while len(done(tmp_path / "runs.zarr")) < 2:
        assert driver.poll() is None
        time.sleep(0.001)
    workers = children(driver.pid)
    driver.kill()
    assert driver.wait() == -signal.SIGKILL
    written = done(tmp_path / "runs.zarr")
    assert subprocess.run(command, env=environment, check=False).returncode == 0
    assert contents(tmp_path / "runs.zarr") == contents(whole)
    after = done(tmp_path / "runs.zarr")
    assert {name: after[name] for name in written} == written
    alive = [x for x in workers if Path(f"/proc/{x}").exists()]
    assert alive == [], "workers outlive their driver"


def failing(tries: Path, times: int):
    """A model that raises on the host, in a batch with a run where x is 5, so many times."""

    def check(x):
        if np.any(x == 5) and (tries.stat().st_size if tries.exists() else 0) < times:
            with tries.open("a") as file:
                file.write("x")
            raise RuntimeError("five is right out")
        return 2 * x

    return lambda x: {
        "double": jax.pure_callback(check, jax.ShapeDtypeStruct((), x.dtype), x, vmap_method="expand_dims")
    }


def test_a_chunk_that_always_fails_is_told_and_the_others_are_kept(tmp_path: Path) -> None:
    model, store = failing(tmp_path / "tries", 3), tmp_path / "runs.zarr"
    settings = {"chunk": 2, "store": store, "executor": ThreadPoolExecutor(2)}
    with pytest.raises(uk.SweepError, match=r"chunk 2 \(runs 4 to 5\).*five is right out") as raised:
        uk.sweep(model, LINE, **settings)
    assert list(raised.value.reasons) == [2]
    assert int((xr.open_zarr(store).result == -1).sum()) == 2
    before = done(store)
    np.testing.assert_array_equal(uk.sweep(model, LINE, **settings).double, 2 * LINE["x"])
    assert before.items() <= done(store).items()


def test_a_chunk_that_fails_twice_is_made_the_third_time(tmp_path: Path) -> None:
    model = failing(tmp_path / "tries", 2)
    runs = uk.sweep(model, LINE, chunk=2, store=tmp_path / "runs.zarr", executor=ThreadPoolExecutor(2))
    assert (tmp_path / "tries").read_text() == "xx"
    np.testing.assert_array_equal(runs.double, 2 * LINE["x"])


class Broken(Executor):
    def submit(self, fn, /, *args, **kwargs):
        raise BrokenExecutor("no process stays alive")


def test_pools_that_never_live_are_given_up(tmp_path: Path) -> None:
    with pytest.raises(uk.SweepError, match="if __name__ == '__main__'"):
        uk.sweep(linear, LINE, store=tmp_path / "runs.zarr", executor=Broken)
    with pytest.raises(uk.SweepError, match="a function that makes an executor"):
        uk.sweep(linear, LINE, store=tmp_path / "runs.zarr", executor=Broken())
    assert list(tmp_path.iterdir()) == []


class Losing(Executor):
    """Each task is lost twice, before and after it was done, and returned the third time."""

    _max_workers = 2

    def __init__(self):
        self.given, self.most = Counter(), 0
        self.flying: list[Future] = []

    def submit(self, fn, /, *args, **kwargs):
        task, future = (args[2], args[-1]), Future()  # what it is called and its last argument: the chunk
        self.given[task] += 1
        tried = self.given[task]
        self.flying = [x for x in self.flying if not x.done()] + [future]
        self.most = max(self.most, len(self.flying))

        def finish():
            found = fn(*args) if tried > 1 else None
            if tried > 2:
                future.set_result(found)
            else:
                future.set_exception(BrokenExecutor("its machine is gone"))

        threading.Timer(0.01, finish).start()
        return future


def test_lost_tasks_are_given_out_again_and_few_at_a_time(whole: Path, tmp_path: Path) -> None:
    executor = Losing()
    uk.sweep(chaotic, PARAMS, chunk=11, store=tmp_path / "runs.zarr", executor=executor)
    assert contents(tmp_path / "runs.zarr") == contents(whole)
    assert list(executor.given.values()) == [3] * (CHUNKS + 1)  # one task looks at the sweep first
    assert executor.most <= 4


def test_what_cannot_travel_is_refused_by_name(tmp_path: Path) -> None:
    guard = threading.Lock()

    def model(x):
        with guard:
            return {"double": 2 * x}

    store = tmp_path / "runs.zarr"
    with pytest.raises(uk.InputError, match=r"cannot be sent to workers: model, guard is .*lock"):
        uk.sweep(model, LINE, store=store, executor=ThreadPoolExecutor(1))
    assert list(tmp_path.iterdir()) == []


WRONG = {
    "no store": ({"store": None}, "with an executor give store="),
    "devices": ({"devices": jax.devices()}, "and no devices"),
    "no executor": ({"executor": object()}, "executor must be a number of processes, a concurrent.futures"),
    "no process": ({"executor": 0}, "executor must be an integer of at least 1"),
    "forked": (
        {"executor": ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork"))},
        "made by forking",
    ),
    "no scheduler": ({"executor": "tcp://127.0.0.1:9"}, "there is no Dask scheduler"),
    "no Ray": ({"executor": "127.0.0.1:9"}, "there is no Ray cluster at '127.0.0.1:9': .*refused"),
}


@pytest.mark.parametrize(("options", "words"), WRONG.values(), ids=WRONG)
def test_wrong_executors_are_told(options: dict, words: str, tmp_path: Path) -> None:
    if "no Dask" in words:
        import dask

        pytest.importorskip("distributed")
        dask.config.set({"distributed.comm.timeouts.connect": "1s"})
    if "no Ray" in words:
        pytest.importorskip("ray")
    settings = {"store": tmp_path / "runs.zarr", "executor": ThreadPoolExecutor(1)} | options
    with pytest.raises(uk.InputError, match=words):
        uk.sweep(linear, LINE, **settings)
    assert list(tmp_path.iterdir()) == []


def test_a_warm_worker_does_not_compile_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, made = _run._compile_batch, []
    monkeypatch.setattr(_run, "_compile_batch", lambda *args: made.append(1) or compiled(*args))
    for i in range(3):
        uk.sweep(
            lambda x: {"y": jnp.cos(3.25 * x)}, {"x": np.arange(6.0) + i}, chunk=2, store=tmp_path / f"{i}.zarr",
            executor=ThreadPoolExecutor(2),
        )  # fmt: skip
    assert len(made) == 1


def test_two_drivers_of_one_store(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    store = tmp_path / "runs.zarr"
    uk.sweep(linear, LINE, store=store)
    lock = _place.LocalFolder(store).locked()
    assert _place.LocalFolder(store).in_use()
    with pytest.raises(uk.InputError, match="another process is writing"):
        uk.sweep(linear, LINE, store=store, executor=ThreadPoolExecutor(1))
    lock.close()
    assert not _place.LocalFolder(store).in_use()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_takes_no_more(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that says so, at once; when there is room again, the same call goes on."""
    write = _store.AbstractTarget.write

    def full(self, chunk, values):
        if chunk == 3:
            raise OSError(number, os.strerror(number))
        write(self, chunk, values)

    store, settings = tmp_path / "runs.zarr", {"chunk": 2, "executor": ThreadPoolExecutor(1)}
    with monkeypatch.context() as patch:
        patch.setattr(_store.AbstractTarget, "write", full)
        with pytest.raises(uk.InputError, match=f"runs.zarr' cannot be written: .*{os.strerror(number)}"):
            uk.sweep(linear, LINE, store=store, **settings)
    before = done(store)
    assert len(before) >= 3
    uk.sweep(linear, LINE, store=store, **settings)
    uk.sweep(linear, LINE, store=tmp_path / "whole.zarr", chunk=2)
    assert contents(store) == contents(tmp_path / "whole.zarr")
    assert before.items() <= done(store).items()


@pytest.mark.parametrize("executor", [None, ThreadPoolExecutor(2)], ids=["here", "workers"])
def test_a_store_that_vanishes_is_waited_for(executor, whole: Path, tmp_path: Path) -> None:
    store, away = tmp_path / "runs.zarr", tmp_path / "away"

    def vanish() -> None:
        while len(done(store)) < 3:
            time.sleep(0.001)
        store.rename(away)
        time.sleep(0.3)
        shutil.rmtree(
            store, ignore_errors=True
        )  # of what was written meanwhile, a file system put back shows nothing
        away.rename(store)

    thread = threading.Thread(target=vanish)
    thread.start()
    uk.sweep(chaotic, PARAMS, chunk=11, store=store, executor=executor)
    thread.join()
    assert contents(store) == contents(whole)


def test_a_store_that_stays_away_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_place, "PATIENCE", 0.1)
    monkeypatch.setattr(
        _store.AbstractTarget,
        "write",
        lambda self, chunk, values: (_ for _ in ()).throw(TimeoutError("no route")),
    )
    with pytest.raises(uk.InputError, match=r"cannot be reached: TimeoutError: no route"):
        uk.sweep(linear, LINE, store=tmp_path / "runs.zarr", executor=ThreadPoolExecutor(1))


def test_a_store_that_was_replaced_is_not_written_to(tmp_path: Path) -> None:
    """A worker that comes back after its sweep was given up, and another one started in the same place."""
    store = tmp_path / "runs.zarr"
    place = _place.LocalFolder(store)
    uk.sweep(linear, LINE, store=store, chunk=2)
    worker = _store.Store(place, place.attributes())
    uk.sweep(linear, {"x": -LINE["x"]}, store=store, chunk=2, overwrite=True)
    before = contents(store)
    with pytest.raises(uk.InputError, match="store of another sweep"):
        worker.write(0, {"double": np.zeros(2), "result": np.zeros(2, np.int8)})
    assert contents(store) == before


SLOT = """
import os, sys
from ukjax._misc import _worker
held = _worker._environment()
print(os.environ["CUDA_VISIBLE_DEVICES"], os.environ["NPROC"], "jax" in sys.modules, flush=True)
sys.stdin.read()
"""


def test_each_worker_of_a_machine_has_one_device(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    environment = os.environ | {
        "CUDA_VISIBLE_DEVICES": "4,7",
        "TMPDIR": str(tmp_path),
        "OMP_NUM_THREADS": "3",
    }
    found = []
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            process = subprocess.Popen(
                [sys.executable, "-c", SLOT],
                env=environment,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            stack.enter_context(process)
            found.append(process.stdout.readline().split())
    assert found == [["4", "3", "False"], ["7", "3", "False"], ["4", "3", "False"]]


@pytest.fixture(scope="module")
def bucket():
    moto = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    server = moto.ThreadedMotoServer(port=0)
    server.start()
    settings = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
    settings["AWS_ENDPOINT_URL"] = "http://{}:{}".format(*server.get_host_and_port())
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        import s3fs

        s3fs.S3FileSystem.clear_instance_cache()
        s3fs.S3FileSystem().mkdir("sweeps")
        yield "s3://sweeps"
        s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


def objects(url: str) -> dict[str, bytes]:
    import s3fs

    files, path = s3fs.S3FileSystem(), url.removeprefix("s3://")
    files.invalidate_cache()
    return {key.removeprefix(f"{path}/"): files.cat_file(key) for key in files.find(path)}


def test_a_store_at_a_url_has_the_bytes_of_a_folder(bucket: str, tmp_path: Path) -> None:
    url, whole = f"{bucket}/runs.zarr", tmp_path / "whole.zarr"
    uk.sweep(chaotic, FEW, chunk=11, store=whole)
    runs = uk.sweep(chaotic, FEW, chunk=11, store=url, executor=ThreadPoolExecutor(2))
    expected = contents(whole)
    assert objects(url) == expected
    xr.testing.assert_identical(runs.load(), xr.open_zarr(whole)[list(runs)].load())
    import s3fs

    for name in ("result/c/1/0", "end/c/1/0", "many/c/2/0/0"):  # one chunk was not done, one cannot be
        s3fs.S3FileSystem().rm_file(f"{url}/{name}")
    uk.sweep(chaotic, FEW, chunk=11, store=url)
    again = objects(url)
    assert expected.keys() - again.keys() == {"many/c/2/0/0"}
    assert again.items() <= expected.items()
    uk.sweep(chaotic, FEW, chunk=11, store=url, overwrite=True)
    assert objects(url) == expected
    assert objects(f"{url}.driver") == {}


def test_a_url_has_one_driver(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lease, "RENEWED", 0.1)
    monkeypatch.setattr(_lease, "EXPIRES", 1.0)
    place = _place.place_of(f"{bucket}/two.zarr")
    lock = place.locked()
    assert place.in_use()
    with pytest.raises(uk.InputError, match=f"another process is writing to .*{os.getpid()} of"):
        uk.sweep(linear, LINE, store=f"{bucket}/two.zarr")
    lock.close()
    files, path = place._files()
    files.pipe_file(f"{path}.driver", b'{"host": "gone", "process": 1}')  # of one that was killed
    uk.sweep(linear, LINE, store=f"{bucket}/two.zarr")
    assert not place.in_use()


def test_what_no_sweep_made_stays_at_its_url(bucket: str) -> None:
    import s3fs

    s3fs.S3FileSystem().pipe_file("sweeps/mine/thesis.txt", b"years of work")
    with pytest.raises(uk.InputError, match="no sweep made it"):
        uk.sweep(linear, LINE, store=f"{bucket}/mine")
    assert objects(f"{bucket}/mine") == {"thesis.txt": b"years of work"}


HOOP = """
import jax.numpy as jnp
import ukjax as uk
from beside import speed

def hoop(radius=1.0):
    wire = uk.Holonomic(lambda t, q: q @ q - radius**2)
    system = uk.System(jnp.eye(2), jnp.array([0.0, -9.81]), (wire,))
    return uk.Problem(system, radius * jnp.array([0.0, -1.0]), jnp.array([speed, 0.0]), 0.0, 0.1)
"""


@pytest.mark.slow
def test_the_command_with_a_model_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(HOOP)
    (tmp_path / "beside.py").write_text("speed = 0.5\n")
    command = [
        sys.executable,
        "-m",
        "ukjax",
        "sweep",
        "own.py:hoop",
        "--grid",
        "radius=1:2:9",
        "--output",
        "q_end",
    ]
    command += ["--chunk", "3", "--json"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    for more in (["--out", "one.zarr", "--cores", "1"], ["--out", "runs.zarr", "--workers", "2"]):
        finished = subprocess.run(
            [*command, *more], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert finished.returncode == 0, finished.stderr
    assert contents(tmp_path / "runs.zarr") == contents(tmp_path / "one.zarr")


@pytest.mark.slow
def test_the_command_tells_how_far_a_store_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = _store.AbstractTarget.write

    def stopped(self, number, values):
        if number == 3:
            raise KeyboardInterrupt
        write(self, number, values)

    with monkeypatch.context() as patch:
        patch.setattr(_store.AbstractTarget, "write", stopped)
        with contextlib.suppress(KeyboardInterrupt):
            uk.sweep(lambda x: {"root": jnp.sqrt(x - 1.5)}, LINE, chunk=2, store=tmp_path / "runs.zarr")
    told = CliRunner().invoke(cli.app, ["sweep", "--status", str(tmp_path / "runs.zarr")]).stdout
    assert "6 of 10 runs made, 2 of them failed; 3 of 5 chunks; no process" in told
    assert "3 chunks by " in told
    figures = CliRunner().invoke(cli.app, ["sweep", "--status", str(tmp_path / "runs.zarr"), "--json"]).stdout
    assert json.loads(figures) == _status.status(tmp_path / "runs.zarr")
    assert json.loads(figures)["failed"] == 2
    wrong = CliRunner().invoke(cli.app, ["sweep", "--status", str(tmp_path / "nothing.zarr")])
    assert (wrong.exit_code, "there is no store" in wrong.stderr) == (2, True)
