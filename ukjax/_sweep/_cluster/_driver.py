"""What gives out the chunks of a sweep: so many at a time, again where one was lost, until all are there."""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from typing import Any, NamedTuple

from ..._misc._errors import InputError, SweepError
from ._executors import Workers
from ._task import Status

AHEAD = 2
"""Tasks given out for each worker: while one is made, the next is on its way."""
TRIES = 3
"""How often a chunk may fail: what happens by chance, such as memory that others took, will not happen so often."""
MAX_LOSSES = 10
"""How often a worker may die with a chunk given to it: that is seldom the chunk's fault, as all chunks of a pool are
lost at once."""
MAX_BARREN_POOLS = 4
"""How many pools may break one after the other, none of which made a chunk."""


class Failure(NamedTuple):
    """Why a chunk was not made."""

    reason: str
    lost: bool


class Ledger:
    """What became of tasks: how often each failed, and why it was given up.

    - `given_up`: reasons by number.
    - `made`: how many tasks were done.
    - `again`: how many were tried again.
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[int, bool]] = Counter()
        self.given_up: dict[int, str] = {}
        self.made = self.again = 0

    def failed(self, number: int, failure: Failure) -> bool:
        """Notes a failure; returns whether to try again."""
        self._counts[number, failure.lost] += 1
        if self._counts[number, failure.lost] < (MAX_LOSSES if failure.lost else TRIES):
            self.again += 1
            return True
        self.given_up[number] = failure.reason
        return False

    @property
    def hopeless(self) -> bool:
        """Whether more was given up than was made."""
        return len(self.given_up) > max(TRIES, self.made)


def _outcome(future: Future) -> Status | Failure:
    """What a finished task came to; raises `InputError` where no other would fare better."""
    try:
        status: Status = future.result()
    except BaseException as error:  # whatever executors raise where a worker is gone
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        first, *rest = str(error).splitlines() or [
            ""
        ]  # Ray has a traceback between what happened and its cause
        text = " ... ".join([first, *rest[-1:]])
        return Failure(f"its worker was lost: {type(error).__name__}: {text}", lost=True)
    if status.final:
        raise InputError(status.error)
    return Failure(status.error, lost=False) if status.error else status


def give_out(
    workers: Workers,
    task: Callable[[int], Future],
    numbers: Sequence[int],
    done: Callable[[Any, Ledger], None],
) -> dict[int, str]:
    """Has tasks done, each once more where it fails by chance; returns the reasons of those given up, by number."""
    waiting, flying, ledger, barren = deque(numbers), {}, Ledger(), 0
    try:
        while (waiting or flying) and not ledger.hopeless:
            while waiting and len(flying) < AHEAD * max(1, workers.count()):
                try:
                    flying[task(waiting[0])] = waiting[0]
                except BrokenExecutor as error:
                    barren += 1
                    if barren > MAX_BARREN_POOLS:
                        raise SweepError(_BARREN.format(barren, error), ledger.given_up) from error
                    workers.renew(error)
                else:
                    waiting.popleft()
            for future in wait(flying, 1.0, FIRST_COMPLETED).done:
                number, outcome = flying.pop(future), _outcome(future)
                if not isinstance(outcome, Failure):
                    barren, ledger.made = 0, ledger.made + 1
                    done(outcome.value, ledger)
                elif ledger.failed(number, outcome):
                    waiting.appendleft(number)
            done(None, ledger)
    finally:
        for future in flying:
            future.cancel()
    return ledger.given_up


_BARREN = (
    "{} pools of workers broke one after the other before any chunk was made ({}). A script that starts processes does "
    "so under `if __name__ == '__main__':`; look at what the workers wrote for other causes."
)
