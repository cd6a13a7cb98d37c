"""The threads that run a model's passes, or those of two models that take turns.

Leaves waiting and waking to `outrider.kernels.cpu.pass_threads`.
"""

import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.cpu.collectives import ALONE, Thread, make_barrier
from outrider.kernels.cpu.forward import Batch
from outrider.kernels.cpu.forward import run as run_pass
from outrider.kernels.cpu.pass_threads import (
    ASLEEP,
    CLOSED,
    Team,
    Work,
    begin_pass,
    help_passes,
    make_words,
)
from outrider.kernels.jit.by_address import ByAddress
from outrider.kernels.jit.handle import handle

NONE = np.zeros(0, np.int32)
NO_LINES = np.zeros((0, 0), np.int32)
NO_WORK = Work(
    Batch(NONE, NONE, NONE, NONE, NONE, NO_LINES, NONE, NONE, NO_LINES, NONE, NONE), ALONE
)


class PassThreads:
    """The caller's thread and its helpers, for passes of one model, or of two that take turns.

    Helpers end with `close`, or when nothing refers to this object any more.
    """

    def __init__(self, models: Sequence[Any], threads: Sequence[int]) -> None:
        """`models`: handles of one or two `PassModel`; `threads`: that run each of them."""
        most, barrier = max(threads), make_barrier()
        self._words = make_words(most)
        bells = [os.pipe() if number else (-1, -1) for number in range(most)]
        ends, work = np.array(bells, np.int32), handle(NO_WORK)
        self.teams = []
        """By model, what compiled code takes."""
        for at, (model, count) in enumerate(zip(models, threads, strict=True)):
            own = Thread(barrier, 0, count)
            run = ByAddress(run_pass, model, *NO_WORK, own)
            self.teams.append(handle(Team(at, own, self._words, ends, work, run)))
        both = (self.teams[0], self.teams[-1]), (models[0], models[-1])
        self.helpers = tuple(
            threading.Thread(
                target=help_passes,
                args=(*both, _places(barrier, number, threads)),
                daemon=True,
            )
            for number in range(1, most)
        )
        """All threads but the caller's."""
        for helper in self.helpers:
            helper.start()
        self._end = weakref.finalize(self, _end, self.teams[0], bells[1:], self.helpers)
        self._end.atexit = False

    @property
    def asleep(self) -> bool:
        """True if every helper sleeps, as they do some time after a pass."""
        return bool(np.all(self._words[ASLEEP + 16 :: 16] == 1))

    def close(self) -> None:
        """End the helpers."""
        self._end()


def _places(
    barrier: NDArray[np.int64], number: int, threads: Sequence[int]
) -> tuple[Thread, Thread]:
    """Return one helper's places among the threads of the first and of the last model."""
    return Thread(barrier, number, threads[0]), Thread(barrier, number, threads[-1])


def _end(team: Any, bells: Sequence[tuple[int, int]], helpers: Sequence[threading.Thread]) -> None:
    begin_pass(team, CLOSED)
    for helper in helpers:
        helper.join()
    for ends in bells:
        for descriptor in ends:
            os.close(descriptor)
