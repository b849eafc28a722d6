"""Stores that fail under a sweep on workers: full, not to be written, out of reach, or at work already."""

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from swept import PARAMS, chaotic, linear
from test_cluster import DRIVER, LINE, contents, done

import ukjax as uk
from ukjax._sweep import _place, _store

FEW = PARAMS | {"start": PARAMS["start"][:6]}
MANY = {"x": np.random.default_rng(0).normal(size=40_000)}  # noise, which no compression makes small


def little_room(most: int) -> None:
    """This process cannot write files of more bytes."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def test_workers_whose_files_do_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system refuses the write, in the midst of a file; nothing of it is there afterwards."""
    pytest.importorskip("resource")
    monkeypatch.setenv("UKJAX_CACHE", "0")
    store, settings = tmp_path / "runs.zarr", {"mp_context": multiprocessing.get_context("spawn")}
    with (
        ProcessPoolExecutor(1, initializer=little_room, initargs=(100_000,), **settings) as pool,
        pytest.raises(uk.InputError, match=r"runs.zarr' cannot be written: .*File too large"),
    ):
        uk.sweep(linear, MANY, chunk=20_000, store=store, executor=pool)
    assert done(store) == {}
    uk.sweep(linear, MANY, chunk=20_000, store=store, executor=ThreadPoolExecutor(1))
    uk.sweep(linear, MANY, chunk=20_000, store=tmp_path / "whole.zarr")
    assert contents(store) == contents(tmp_path / "whole.zarr")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="has no /proc")
def test_a_place_that_takes_no_store() -> None:
    with pytest.raises(uk.InputError, match=r"/proc/runs.zarr"):
        uk.sweep(linear, LINE, store="/proc/runs.zarr", executor=ThreadPoolExecutor(1))


class Server:
    """An S3 server that can be away; what it holds outlives that."""

    def __init__(self):
        moto = pytest.importorskip("moto.server")
        self._make, self._port = moto.ThreadedMotoServer, 0
        self.start()
        self._port = self._server.get_host_and_port()[1]

    def start(self) -> None:
        self._server = self._make(ip_address="127.0.0.1", port=self._port, verbose=False)
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch):
    s3fs, server = pytest.importorskip("s3fs"), Server()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    s3fs.S3FileSystem.clear_instance_cache()
    if not s3fs.S3FileSystem().exists("away"):  # servers of a process share what they hold
        s3fs.S3FileSystem().mkdir("away")
    yield server
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


@pytest.mark.parametrize("seconds", [0.3, pytest.param(20.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_url_that_vanishes_is_waited_for(
    server: Server, seconds: float, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3fs = pytest.importorskip("s3fs")
    uk.sweep(chaotic, FEW, chunk=11, store=tmp_path / "whole.zarr")
    files, path, back = s3fs.S3FileSystem(), f"away/{seconds:.0f}-{workers}.zarr", []
    write = _store.AbstractTarget.write

    def vanishing(self, chunk: int, values: dict) -> None:
        if chunk == 3 and not back:
            server.stop()
            back.append(threading.Timer(seconds, server.start))
            back[0].start()
        write(self, chunk, values)

    monkeypatch.setattr(_store.AbstractTarget, "write", vanishing)
    executor = Slow(workers) if workers else None
    uk.sweep(chaotic, FEW, chunk=11, store=f"s3://{path}", executor=executor)
    back[0].join()
    files.invalidate_cache()
    stored = {key.removeprefix(f"{path}/"): files.cat_file(key) for key in files.find(path)}
    assert stored == contents(tmp_path / "whole.zarr")


class Slow(Executor):
    """Threads that take a while for each task, so that something can happen in between."""

    def __init__(self, workers: int):
        self._max_workers, self._threads = workers, ThreadPoolExecutor(workers)

    def submit(self, fn, /, *args, **kwargs):
        def later():
            time.sleep(0.1)
            return fn(*args, **kwargs)

        return self._threads.submit(later)


@pytest.mark.slow
def test_a_second_driver_in_another_process_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    store, script = tmp_path / "runs.zarr", tmp_path / "driver.py"
    script.write_text(DRIVER)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    driver = subprocess.Popen([sys.executable, str(script), str(store)], env=environment)
    while not done(store):
        assert driver.poll() is None
        time.sleep(0.001)
    with pytest.raises(uk.InputError, match="another process is writing"):
        _place.LocalFolder(store).locked()
    assert driver.wait() == 0
    uk.sweep(chaotic, PARAMS, chunk=11, store=tmp_path / "whole.zarr")
    assert contents(store) == contents(tmp_path / "whole.zarr")
