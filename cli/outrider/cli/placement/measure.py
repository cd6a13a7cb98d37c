"""Measurement of a pair in the processes that will serve: passes alone and side by side, guesses.

    load → passes in one process, by threads → passes of two at once → answers

Leaves the passes themselves to the workers (`launch.arrangement`), conclusions to `choose`.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outrider.cli.failures import Failure, WorkerFailed
from outrider.cli.placement.arrangement import threads_in_words
from outrider.cli.placement.facts import PassSeconds
from outrider.cli.placement.formula import CATCH_UP_ROWS, GROWTH_ROWS
from outrider.cli.progress import Reporter
from outrider.cli.undecided import Undecided
from outrider.client.errors import ClientError
from outrider.contract.settings import WorkerSettings

NAME = "placement"
"""Of this work in progress shown and in logs."""
TARGET = tuple((False, rows) for rows in (1, 2, 4, 8))
DRAFT = tuple((True, rows) for rows in (CATCH_UP_ROWS, GROWTH_ROWS))
ROUND = (*DRAFT, *TARGET)
"""Passes of one process in its own order: the draft's first one comes behind one of its target, and
finds nothing in the caches."""
SECONDS = 1.0
"""Time spent on rounds of passes."""
ANSWER_SECONDS = 2.0
TOKENS = 48
PROMPTS = (
    "Explain to a child why the sky is blue.",
    "Write a Python function that reverses a string, and say how it works.",
)


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was measured, and how long that took."""

    alone: Mapping[int, PassSeconds]
    """By threads of the target."""
    beside: PassSeconds | None
    guesses: int
    hits: int
    loading_seconds: float
    seconds: float


async def measure(
    target: Undecided,
    draft: Undecided | None,
    threads: Sequence[int],
    separate: tuple[WorkerSettings, WorkerSettings] | None,
    progress: Reporter,
) -> Measurement:
    """Measure with each number of threads, then as two processes with the settings `separate`.

    A draft that cannot be used is said and left out. Raises `WorkerFailed` and `Failure` for a
    target that cannot be measured.
    """
    began = time.monotonic()
    inside = target.supervisor.worker.settings.colocated is not None
    try:
        refused = (await target.loaded()).refused
        if refused:
            progress.note(f"the draft is not used: {refused}.")
        if draft is None or refused or not await _loads(draft, progress):
            separate = None
        loaded = time.monotonic()
        passes, alone = ROUND if inside and not refused else TARGET, {}
        for count in threads:
            progress.stage(NAME, f"timing passes, {threads_in_words(count)}")
            said = await target.measured(count, passes, SECONDS)
            alone[count] = _by_model(passes, said.seconds)
        beside = None
        if draft is not None and separate is not None:
            progress.stage(NAME, "timing both at once")
            rounds = 3 * sum(alone[separate[0].threads].target.values())
            beside = await _beside(target, draft, separate, max(SECONDS, rounds), progress)
        progress.stage(NAME, "comparing answers")
        answers = {"prompts": PROMPTS, "tokens": TOKENS} if inside else {}
        said = await target.measured(max(threads), (), ANSWER_SECONDS, **answers)
    except ClientError as error:
        words = "a service that names draft.placement starts without that"
        raise Failure(f"the target cannot be measured: {error}; {words}.") from error
    finally:
        progress.finish(NAME)
    spent = loaded - began, time.monotonic() - loaded
    return Measurement(alone, beside, said.guesses, said.hits, *spent)


async def _loads(draft: Undecided, progress: Reporter) -> bool:
    """Wait for the draft's own process; False, with a note, where it cannot be used."""
    try:
        await draft.loaded()
    except (WorkerFailed, ClientError) as error:
        _say_lost(error, progress)
        return False
    return True


async def _beside(
    target: Undecided,
    draft: Undecided,
    separate: tuple[WorkerSettings, WorkerSettings],
    seconds: float,
    progress: Reporter,
) -> PassSeconds | None:
    """Time both models at the same time, each on its processors; None where the draft ends."""
    both = ((target, TARGET, separate[0]), (draft, DRAFT, separate[1]))
    said, drafted = await asyncio.gather(
        *(
            one.measured(own.threads, passes, seconds, processors=own.processors)
            for one, passes, own in both
        ),
        return_exceptions=True,
    )
    if isinstance(said, BaseException):
        raise said
    if isinstance(drafted, WorkerFailed | ClientError):
        _say_lost(drafted, progress)
        return None
    if isinstance(drafted, BaseException):
        raise drafted
    return _by_model((*TARGET, *DRAFT), (*said.seconds, *drafted.seconds))


def _say_lost(error: Exception, progress: Reporter) -> None:
    first_line, *_ = str(error).splitlines()
    progress.note(f"the draft has no process of its own: {first_line}")


def _by_model(passes: Sequence[tuple[bool, int]], seconds: Sequence[float]) -> PassSeconds:
    """Return the seconds of a round by model and rows."""
    target, draft = (
        {rows: s for (drafted, rows), s in zip(passes, seconds, strict=True) if drafted is which}
        for which in (False, True)
    )
    return PassSeconds(target, draft)
