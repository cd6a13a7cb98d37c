"""Measurement of a pair in the processes that will serve: passes alone and side by side, guesses.

    load → passes in one process, by threads → passes of two at once → answers

Leaves the passes themselves to the workers (`launch.arrangement`), conclusions to `choose`.
"""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from outrider.cli.failures import Failure, WorkerFailed
from outrider.cli.placement.facts import Facts, PassSeconds
from outrider.cli.placement.formula import CATCH_UP_ROWS, GROWTH_ROWS
from outrider.cli.service.arrangement import threads_in_words
from outrider.cli.terminal.progress import StageReporter
from outrider.cli.undecided import Undecided
from outrider.client.errors import ClientError
from outrider.contract.settings import WorkerSettings
from outrider.protos.v1.internal import control_pb2 as pb

Answer = TypeVar("Answer")
NAME = "placement"
"""Name of this work in progress shown and in logs."""
TARGET = tuple(pb.MeasuredPass(rows=rows) for rows in (1, 2, 4, 8))
DRAFT = tuple(pb.MeasuredPass(draft=True, rows=rows) for rows in (CATCH_UP_ROWS, GROWTH_ROWS))
"""Before the target's in a round, as one process runs them: the first one finds nothing in the
caches."""
TURNS = 3
"""Times that each is timed, in turns. The least counts: what else runs on the machine for a second
or two then slows down none of them."""
SECONDS = 0.5
"""Time spent on rounds of passes, each time."""
ANSWERS = pb.MeasureRequest(
    seconds=2.0,
    tokens=48,
    prompts=(
        "Explain to a child why the sky is blue.",
        "Write a Python function that reverses a string, and say how it works.",
    ),
)


async def measure(
    target: Undecided,
    draft: Undecided | None,
    threads: Sequence[int],
    separate: tuple[WorkerSettings, WorkerSettings] | None,
    progress: StageReporter,
) -> tuple[Facts, str]:
    """Measure with each number of threads, and as `Separate` with the settings `separate`.

    Returns what was found, and how long that took in words.
    A draft that cannot be used is said and left out. Raises `WorkerFailed` and `Failure` for a
    target that cannot be measured.
    """
    began = time.monotonic()
    alone: dict[int, PassSeconds] = {}
    beside: PassSeconds | None = None
    drafts = target.supervisor.worker.settings.colocated is not None
    try:
        if refused := (await target.loaded()).refused:
            progress.note(f"the draft is not used: {refused}.")
        if draft is None or refused or await _of(draft.loaded(), progress) is None:
            separate = None
        loaded = time.monotonic()
        passes = (*DRAFT, *TARGET) if drafts and not refused else TARGET
        for _ in range(TURNS):
            for count in threads:
                progress.stage(NAME, f"timing passes, {threads_in_words(count)}")
                wanted = pb.MeasureRequest(threads=count, passes=passes, seconds=SECONDS)
                found = _by_model(passes, (await target.measured(wanted)).seconds)
                alone[count] = _least(alone.get(count), found)
            if draft is None or separate is None:
                continue
            progress.stage(NAME, "timing both at once")
            rounds = 3 * sum(alone[separate[0].threads].target.values())
            said, drafted = await asyncio.gather(
                _side(target, TARGET, separate[0], max(SECONDS, rounds)),
                _of(_side(draft, DRAFT, separate[1], max(SECONDS, rounds)), progress),
            )
            if drafted is None:
                separate = beside = None
            else:
                beside = _least(beside, replace(drafted, target=said.target))
        progress.stage(NAME, "comparing answers")
        wanted = pb.MeasureRequest(threads=max(threads))
        wanted.MergeFrom(ANSWERS)
        answers = await target.measured(wanted) if drafts else pb.MeasureResponse()
    except ClientError as error:
        words = "a service that names draft.placement starts without that"
        raise Failure(f"the target cannot be measured: {error}; {words}.") from error
    finally:
        progress.finish(NAME)
    spent = f"loaded in {loaded - began:.1f} s, measured in {time.monotonic() - loaded:.1f} s"
    return Facts(alone, beside, answers.guesses, answers.hits), spent


async def _of(asking: Coroutine[Any, Any, Answer], progress: StageReporter) -> Answer | None:
    """Return what a draft's own process answers; None, with a note, where it ends."""
    try:
        return await asking
    except (WorkerFailed, ClientError) as error:
        first_line, *_ = str(error).splitlines()
        progress.note(f"the draft has no process of its own: {first_line}")
        return None


async def _side(
    one: Undecided, passes: Sequence[pb.MeasuredPass], own: WorkerSettings, seconds: float
) -> PassSeconds:
    """Time one process of `Separate`, on the processors that it will have."""
    wanted = pb.MeasureRequest(
        threads=own.threads, processors=own.processors, passes=passes, seconds=seconds
    )
    return _by_model(passes, (await one.measured(wanted)).seconds)


def _least(before: PassSeconds | None, now: PassSeconds) -> PassSeconds:
    """Return the least seconds of each pass."""
    if before is None:
        return now
    return PassSeconds(
        {rows: min(before.target[rows], s) for rows, s in now.target.items()},
        {rows: min(before.draft[rows], s) for rows, s in now.draft.items()},
    )


def _by_model(passes: Sequence[pb.MeasuredPass], seconds: Sequence[float]) -> PassSeconds:
    """Return the seconds of a round by model and rows."""
    found = list(zip(passes, seconds, strict=True))
    target = {one.rows: s for one, s in found if not one.draft}
    return PassSeconds(target, {one.rows: s for one, s in found if one.draft})
