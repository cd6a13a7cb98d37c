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
from outrider.protos.v1 import control_pb2 as pb

Answer = TypeVar("Answer")
NAME = "placement"
"""Of this work in progress shown and in logs."""
TARGET = tuple(pb.MeasuredPass(rows=rows) for rows in (1, 2, 4, 8))
DRAFT = tuple(pb.MeasuredPass(draft=True, rows=rows) for rows in (CATCH_UP_ROWS, GROWTH_ROWS))
"""Before the target's in a round, as one process runs them: the first one finds nothing in the
caches."""
SECONDS = 1.0
"""Time spent on rounds of passes."""
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
    """Measure with each number of threads, then as two processes with the settings `separate`;
    return what was found, and how long that took in words.

    A draft that cannot be used is said and left out. Raises `WorkerFailed` and `Failure` for a
    target that cannot be measured.
    """
    began, alone, beside = time.monotonic(), {}, None
    drafts = target.supervisor.worker.settings.colocated is not None
    try:
        if refused := (await target.loaded()).refused:
            progress.note(f"the draft is not used: {refused}.")
        if draft is None or refused or await _of(draft.loaded(), progress) is None:
            separate = None
        loaded = time.monotonic()
        for count in threads:
            progress.stage(NAME, f"timing passes, {threads_in_words(count)}")
            passes = (*DRAFT, *TARGET) if drafts and not refused else TARGET
            wanted = pb.MeasureRequest(threads=count, passes=passes, seconds=SECONDS)
            alone[count] = _by_model(passes, (await target.measured(wanted)).seconds)
        if draft is not None and separate is not None:
            progress.stage(NAME, "timing both at once")
            rounds = 3 * sum(alone[separate[0].threads].target.values())
            said, drafted = await asyncio.gather(
                _side(target, TARGET, separate[0], max(SECONDS, rounds)),
                _of(_side(draft, DRAFT, separate[1], max(SECONDS, rounds)), progress),
            )
            beside = drafted and replace(drafted, target=said.target)
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
    """Time one of two processes, on the processors that it will have."""
    wanted = pb.MeasureRequest(
        threads=own.threads, processors=own.processors, passes=passes, seconds=seconds
    )
    return _by_model(passes, (await one.measured(wanted)).seconds)


def _by_model(passes: Sequence[pb.MeasuredPass], seconds: Sequence[float]) -> PassSeconds:
    """Return the seconds of a round by model and rows."""
    found = list(zip(passes, seconds, strict=True))
    target = {one.rows: s for one, s in found if not one.draft}
    return PassSeconds(target, {one.rows: s for one, s in found if one.draft})
