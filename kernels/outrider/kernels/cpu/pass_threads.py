"""Threads that run passes together without the interpreter: the engine's own, and its helpers.

A helper waits in compiled code from pass to pass: it spins for a while, then offers its core to
others, then sleeps until the engine's thread rings its bell, a pipe. So the next pass of a sequence
begins at once on all threads, and an idle engine uses no processor. Two models may share helpers,
for passes that take turns. Leaves starting helpers to the worker, what a pass does to `forward`.

Who runs passes calls them by address: a call by name would bring a copy of the whole pass (Zen 5:
3 s a copy, of which the loops of a serial draft had fifteen).
"""

from typing import NamedTuple

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from outrider.kernels.cpu.collectives import SharedSums, Thread
from outrider.kernels.cpu.forward import Batch
from outrider.kernels.jit.atomics import exchange, read, write
from outrider.kernels.jit.by_address import ByAddress
from outrider.kernels.jit.handle import Handle

SPINS = 20_000
"""Looks before the core is offered to others (Zen 5: 30 µs)."""
OFFERS = 2_000
"""Further looks, one after each offer, before a helper sleeps: about a millisecond where no thread
takes the offer, several times what an engine does between two passes."""
LATEST, ASLEEP = 0, 16
"""Places in `Team.words`: the latest pass, and from ASLEEP on a word a helper, each on a cache line
of its own, that is 1 while it sleeps."""
KINDS = 4
"""A pass is KINDS times its number, plus which of the models runs it; so one word says both."""
CLOSED = 2
"""In place of a model: helpers return."""
_offer_core = types.ExternalFunction("sched_yield", types.int32())
_read_pipe = types.ExternalFunction("read", types.intp(types.int32, types.voidptr, types.uintp))
_write_pipe = types.ExternalFunction("write", types.intp(types.int32, types.voidptr, types.uintp))


class Work(NamedTuple):
    """One pass."""

    rows: Batch
    shared: SharedSums


class Team(NamedTuple):
    """The team of threads of one engine, as one of its models takes it."""

    model: int
    """0 or 1."""
    own: Thread
    """The engine's thread, among those that run this model."""
    words: NDArray[np.int64]
    """The latest pass, and whether each helper sleeps, from `make_words`."""
    bells: NDArray[np.int32]
    """[threads, 2] the ends, to read and to write, of each helper's pipe; the first is unused."""
    work: Handle[Work]
    """The present pass, for helpers."""
    run: ByAddress
    """Runs a pass of the model on one thread."""


def make_words(threads: int) -> NDArray[np.int64]:
    """Make `Team.words`."""
    return np.zeros(ASLEEP + 16 * threads, np.int64)


@njit(cache=True, nogil=True)
def run_together(team, model, rows, shared):  # type: ignore[no-untyped-def]
    """Run a pass as `forward.run`, on all threads of the team's model."""
    if team.value.own.threads > 1:
        team.value.work.value = Work(rows, shared)
        begin_pass(team, team.value.model)
    team.value.run(model, rows, shared, team.value.own)


@njit(cache=True, nogil=True)
def begin_pass(team, model):  # type: ignore[no-untyped-def]
    """Have all helpers begin; wake those that sleep."""
    words, bells = team.value.words, team.value.bells
    write(words, LATEST, (read(words, LATEST) // KINDS + 1) * KINDS + model)
    ring = np.zeros(1, np.uint8)
    for helper in range(1, bells.shape[0]):
        if exchange(words, ASLEEP + 16 * helper, 0):
            _write_pipe(bells[helper, 1], ring.ctypes, 1)


@njit(cache=True, nogil=True)
def help_passes(teams, models, threads):  # type: ignore[no-untyped-def]
    """Take part in every pass of two models, which may be one, until their teams are closed.

    `threads`: the helper's `Thread` among those that run each model. One that is beyond those of a
    model lets its passes go by.
    """
    first, second = teams[0].value, teams[1].value
    words, work, latest = first.words, first.work, 0
    number = max(threads[0].number, threads[1].number)
    while True:
        latest = _await_pass(words, latest, first.bells[number, 0], number)
        model = latest % KINDS
        if model == CLOSED:
            return
        if model == 0 and number < threads[0].threads:
            first.run(models[0], work.value.rows, work.value.shared, threads[0])
        elif model == 1 and number < threads[1].threads:
            second.run(models[1], work.value.rows, work.value.shared, threads[1])


@njit(cache=True, nogil=True)
def _await_pass(words, latest, bell, helper):  # type: ignore[no-untyped-def]
    """Return the next pass after `latest`."""
    looks = 0
    while read(words, LATEST) == latest:
        looks += 1
        if looks > SPINS:
            _offer_core()
        if looks > SPINS + OFFERS:
            _sleep(words, latest, bell, helper)
            looks = 0
    return read(words, LATEST)


@njit(cache=True, nogil=True)
def _sleep(words, latest, bell, helper):  # type: ignore[no-untyped-def]
    """Sleep until the bell rings, unless a pass has begun meanwhile."""
    write(words, ASLEEP + 16 * helper, 1)
    if read(words, LATEST) == latest or not exchange(words, ASLEEP + 16 * helper, 0):
        rung = np.empty(1, np.uint8)
        _read_pipe(bell, rung.ctypes, 1)
