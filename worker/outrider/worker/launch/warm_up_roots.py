"""Warm-up of the compiled loop of a serial draft's roots, with the schedulers of a warm-up."""

import time
from typing import Any

from outrider.worker.compiled_loop.run import RootRun
from outrider.worker.launch.serial import SerialScheduler
from outrider.worker.launch.warmup import PROMPT
from outrider.worker.messages import Cancel, Submit
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.speculation.wait import WaitPolicy, WaitPolicyByBatch, WantedGrowths

TOKENS = 32


class UsualWaits(WaitPolicy):
    """Waits for one growth at each root, from the first on."""

    @property
    def wanted(self) -> WantedGrowths:
        """One at each of as many roots as a run takes."""
        return WantedGrowths(1, 1, TOKENS)

    def should_wait(self, roots: list[tuple[bool, int]], *weighed: Any) -> bool:
        """Return True where a root has not grown."""
        return min(growths for _, growths in roots) < 1


def warm_up_roots(serial: SerialScheduler) -> bool:
    """Step until a run of roots has ended, then free all KV; return True if there was one.

    There is none where passes of either role do not run on the CPU.
    """
    if serial.runs is None:
        return False
    serial.target.row_selector.wait_policy = WaitPolicyByBatch(UsualWaits)
    now = time.monotonic()
    serial.receive(Submit(1, PROMPT, SamplingParams(), TOKENS, (), True, now), now)
    ran = False
    while not ran and (step := serial.next(time.monotonic())) is not None:
        serial.settle(step, serial.run(step), time.monotonic())
        ran = isinstance(step, RootRun)
    serial.receive(Cancel(1), time.monotonic())
    serial.deliver(time.monotonic())  # the draft's session ends too
    return ran
