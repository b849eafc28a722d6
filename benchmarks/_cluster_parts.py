"""What `cluster.py` does to processes: it starts schedulers and workers, kills them, and looks at their memory."""

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

# What the command line of a worker has, by the kind of executor.
WORKERS = {
    "dask": b"spawn_main",
    "pool": b"spawn_main",
    "loky": b"loky.backend.popen",
    "ray": b"ray::_Caller",
}


def _stat(process: int) -> list[str]:
    """State, parent and all that follows in /proc; nothing of a process that is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return []


def descendants(process: int) -> list[int]:
    """The processes below one, those that started first in front."""
    parents = {int(x): stat for x in os.listdir("/proc") if x.isdigit() and (stat := _stat(int(x)))}
    found, more = [], {process}
    while more:
        more = {x for x, stat in parents.items() if int(stat[1]) in more}
        found += more
    return sorted(found, key=lambda x: int(parents[x][19]))


def workers_below(process: int, kind: str) -> list[int]:
    """The workers among them, the oldest in front."""
    found = []
    for x in descendants(process):
        with contextlib.suppress(OSError):
            if WORKERS[kind] in Path(f"/proc/{x}/cmdline").read_bytes():
                found.append(x)
    return found


def processor_time(process: int) -> float:
    """Of a process and those below it that run [s]."""
    ticks = sum(int(x) for p in [process, *descendants(process)] for x in _stat(p)[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")


def most_memory(process: int) -> float:
    """The most memory a process has had so far [MB]."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1e3
    return 0.0


def end(process: int) -> None:
    """Ends a process and those below it."""
    for x in [process, *descendants(process)]:
        with contextlib.suppress(OSError):
            os.kill(x, signal.SIGKILL)


def _started(command: list[str]) -> subprocess.Popen:
    # Dask's workers start others by spawning; nothing here reads what they print.
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _dask(folder: Path, workers: int) -> tuple[str, list[subprocess.Popen]]:
    import json

    at = folder / "scheduler.json"
    module = [sys.executable, "-m"]
    flags = ["--scheduler-file", str(at), "--no-dashboard"]
    scheduler = _started([*module, "distributed.cli.dask_scheduler", "--port", "0", *flags])
    flags += ["--nworkers", str(workers), "--nthreads", "1", "--local-directory", str(folder)]
    nannies = _started([*module, "distributed.cli.dask_worker", *flags])
    while not (at.exists() and at.read_text().endswith("}")):
        time.sleep(0.1)
    return json.loads(at.read_text())["address"], [scheduler, nannies]


def _ray(folder: Path, workers: int) -> tuple[str, list[subprocess.Popen]]:
    os.environ["RAY_AUTH_MODE"] = "disabled"  # a token that lies in the home folder is known to the head only
    port = "6399"
    command = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--port", port]
    command += ["--num-cpus", str(workers), "--include-dashboard", "false", "--temp-dir", str(folder)]
    head = _started([*command, "--disable-usage-stats"])
    status = [str(Path(sys.executable).with_name("ray")), "status", "--address", f"127.0.0.1:{port}"]
    end = time.monotonic() + 120.0
    while (told := subprocess.run(status, capture_output=True, text=True, check=False)).returncode:
        if time.monotonic() > end:  # it says to nobody when it is up
            raise SystemExit(f"Ray did not start: {told.stderr[-2000:]}")
        time.sleep(1.0)
    return f"127.0.0.1:{port}", [head]


@contextlib.contextmanager
def cluster(kind: str, workers: int) -> Iterator[tuple[str, int]]:
    """The address of a cluster of this machine, and the process that has the workers below it; of an executor that the
    driver makes, "" and 0.
    """
    if kind not in ("dask", "ray"):
        yield "", 0
        return
    folder = Path(tempfile.mkdtemp(prefix="cluster"))
    address, processes = (_dask if kind == "dask" else _ray)(folder, workers)
    try:
        yield address, processes[-1].pid
    finally:
        for process in processes:
            end(process.pid)
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def digests(store: Path) -> dict[str, str]:
    """What is in each file of a store."""
    return {
        str(x.relative_to(store)): hashlib.sha256(x.read_bytes()).hexdigest()
        for x in store.rglob("*")
        if x.is_file()
    }


def done(store: Path) -> dict[str, int]:
    """When each chunk of results was written."""
    times = {}
    for x in store.glob("result/c/**/*"):
        with contextlib.suppress(OSError):
            if x.is_file() and x.suffix != ".partial":
                times[str(x)] = x.stat().st_mtime_ns
    return times
