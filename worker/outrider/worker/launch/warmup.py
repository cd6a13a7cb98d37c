"""Warm-up: a role's steps are run before it serves, so that no request waits for a compilation.

The schedulers are dropped afterwards; only compiled code and an empty KV cache remain.
"""

import statistics
import time
from typing import Any

import numpy as np

from outrider.kernels.sampling.penalties import forbid
from outrider.worker.compiled_loop.run import RootOutput
from outrider.worker.draft.batch import DraftBatch
from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.engine.loop import Runner
from outrider.worker.engine.runner import TopChildren
from outrider.worker.link.wire import Close, CloseReason, Commit, Grow, Limits, Open
from outrider.worker.messages import Cancel, FromPeer, LinkDown, LinkUp, Submit
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.speculation.answer_index import NO_ANSWERS, write
from outrider.worker.speculation.planner import NodeCandidates, plan_rows
from outrider.worker.target.scheduler import TargetScheduler
from outrider.worker.tree.growth import Growth

LINK = 1
STEPS = 8
PLAIN_STEPS = 9
PROMPT = np.array([1, 2, 3], np.int32)
SAMPLINGS = (
    SamplingParams(),
    SamplingParams(temperature=0.8, top_p=0.9, seed=1),
    SamplingParams(repetition_penalty=1.1, logit_bias=((1, 1.0),), forbidden=((1, 2),)),
)
LIMITS = Limits(1, depth=8, width=4, nodes_ahead=64, error_scale=1.0)


def warm_up_target(scheduler: TargetScheduler, runner: Runner[Any, Any], vocabulary: int) -> None:
    """Run a few steps of requests whose draft sends arbitrary nodes."""
    for request, sampling in enumerate(SAMPLINGS, start=1):
        now = time.monotonic()
        scheduler.receive(LinkUp(LINK, np.ones(vocabulary, np.bool_)), now)
        submit = Submit(
            request, PROMPT, sampling, STEPS * 4, (), True, now, logprobs=1, prediction=PROMPT
        )
        scheduler.receive(submit, now)
        for step_number in range(STEPS):
            step = scheduler.next(time.monotonic(), may_wait=False)
            if step is None:
                break
            scheduler.settle(step, runner.run(step), time.monotonic())
            position = scheduler.admission.running[0].position if scheduler.admission.running else 0
            growth = arbitrary_growth(position, 3 * step_number + 1)
            scheduler.receive(FromPeer(LINK, [growth]), time.monotonic())
        scheduler.receive(Cancel(request), time.monotonic())
        scheduler.receive(LinkDown(LINK), time.monotonic())
    plain_host_seconds(scheduler, runner)  # the loop of plain passes
    plan_two_sequences()
    write(NO_ANSWERS, PROMPT, 0, 1)
    forbid(np.zeros(8, np.float32), np.frombuffer(bytes(1), np.uint8))


def plan_two_sequences() -> None:
    """Compile the planner of several sequences."""
    one = np.ones(1, np.int32)
    ranked = NodeCandidates(one, np.ones(1, np.float32), one)
    plan_rows([ranked, ranked], np.arange(4.0), 1.0, 2)


def plain_host_seconds(scheduler: TargetScheduler, runner: Runner[Any, Any]) -> float:
    """Measure the seconds of a step of plain decoding beside its pass: the median of a few."""
    before = time.monotonic()
    scheduler.receive(Submit(1, PROMPT, SamplingParams(), PLAIN_STEPS, (), False, before), before)
    beside = []
    while (step := scheduler.next(time.monotonic())) is not None:
        began = time.monotonic()
        output = runner.run(step)
        ran = time.monotonic()
        scheduler.settle(step, output, ran)
        now = time.monotonic()
        passes, seconds = 1, ran - began
        if isinstance(output, RootOutput):
            passes, seconds = len(output.roots), output.pass_seconds
        beside += [(now - before - seconds) / passes] * passes
        before = now
    return statistics.median(beside)


def warm_up_draft(
    scheduler: DraftScheduler, runner: Runner[DraftBatch, list[TopChildren]], vocabulary: int
) -> None:
    """Run a few passes of sessions whose target commits arbitrary tokens."""
    for sampling in SAMPLINGS:
        now = time.monotonic()
        scheduler.receive(LinkUp(LINK, np.ones(vocabulary, np.bool_)), now)
        opening = Open(1, PROMPT, sampling, LIMITS, len(PROMPT))
        scheduler.receive(FromPeer(LINK, [opening]), now)
        for number in range(STEPS):
            step = scheduler.next(time.monotonic())
            if step is None:
                break
            scheduler.settle(step, runner.run(step), time.monotonic())
            if number % 2:
                commit = Commit(1, len(PROMPT) - 1 + number // 2, PROMPT[:1])
                scheduler.receive(FromPeer(LINK, [commit]), time.monotonic())
        closing = Close(1, CloseReason.FINISHED)
        scheduler.receive(FromPeer(LINK, [closing]), time.monotonic())


def arbitrary_growth(position: int, first_id: int) -> Grow:
    """Return three nodes below the root at `position`."""
    parents = np.array([0, first_id, 0], np.int64)
    tokens = np.array([4, 5, 6], np.int32)
    logprobs = np.array([-0.1, -0.2, -2.5], np.float32)
    return Grow(1, Growth(position, first_id, parents, tokens, logprobs))


def discard(link: int, message: object) -> None:
    """Drop a message that warm-up sends to a peer."""
