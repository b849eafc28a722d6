"""What long work says: on a terminal only, after a while only, and as the logger's level allows."""

import io
import logging
import os
import subprocess
import sys
import threading
import time

import pytest

from ukjax._misc import _progress


class Terminal(io.StringIO):
    """Standard error as one sees it."""

    def isatty(self) -> bool:
        return True


def watch(monkeypatch, later: float = 0.05) -> Terminal:
    """A terminal, on which a word comes so soon. Within the test: pytest puts back its own streams before."""
    monkeypatch.setattr(_progress, "_LATER", later)
    monkeypatch.setattr(_progress._Last, "ended", -1e9)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    return terminal


def work(seconds: float) -> None:
    with _progress.say("at work ..."):
        time.sleep(seconds)


def test_long_work_says_so_and_leaves_nothing(monkeypatch) -> None:
    soon = watch(monkeypatch)
    threads = threading.active_count()
    work(0.5)
    assert soon.getvalue() == "\rat work ...\r\x1b[K"
    assert threading.active_count() == threads


def test_short_work_says_nothing(monkeypatch) -> None:
    soon = watch(monkeypatch, 60.0)
    work(0.0)
    assert soon.getvalue() == ""


def test_works_in_a_row_count_as_one(monkeypatch) -> None:
    """As the stages of compiling, of which none may take long."""
    soon = watch(monkeypatch, 0.5)
    monkeypatch.setattr(_progress, "_TOGETHER", 60.0)
    for _ in range(4):
        work(0.2)
    assert "at work ..." in soon.getvalue()


def test_silence_where_nobody_watches_or_it_is_asked_for(monkeypatch) -> None:
    soon = watch(monkeypatch)
    with pytest.MonkeyPatch.context() as to:
        to.setattr(_progress.LOGGER, "level", logging.WARNING)
        work(0.2)
    assert soon.getvalue() == ""
    monkeypatch.setattr(sys, "stderr", file := io.StringIO())
    work(0.2)
    assert file.getvalue() == ""


def test_other_work_within_and_on_threads_says_nothing(monkeypatch) -> None:
    soon = watch(monkeypatch)
    with _progress.say("around it ..."):
        work(0.2)
    assert "around it" in soon.getvalue()
    thread = threading.Thread(target=work, args=[0.2])
    thread.start()
    thread.join()
    assert "at work" not in soon.getvalue()


def test_the_logger_is_told(monkeypatch, caplog) -> None:
    watch(monkeypatch)
    with caplog.at_level(logging.INFO, "ukjax"):
        work(0.2)
    assert any("at work" in x.getMessage() and x.name == "ukjax" for x in caplog.records)
    assert any(isinstance(x, logging.NullHandler) for x in logging.getLogger("ukjax").handlers)


FIRST_CALL = """
from ukjax._misc import _progress
import ukjax as uk
_progress._LATER = 0.0
uk.simulate(uk.models.pendulum(), t1=0.1)
"""


@pytest.mark.skipif(os.name == "nt", reason="there are no pseudo-terminals")
def test_a_first_call_on_a_terminal() -> None:
    import pty

    ours, theirs = pty.openpty()
    environment = {**os.environ, "UKJAX_CACHE": "off"}
    subprocess.run(
        [sys.executable, "-c", FIRST_CALL], stderr=theirs, env=environment, check=True, timeout=300
    )
    os.close(theirs)
    assert b"compiling (first call; later calls reuse it)" in os.read(ours, 100_000)
    os.close(ours)
