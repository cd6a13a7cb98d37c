"""Warm-up of the compiled loop of a serial draft's roots, with the schedulers of a warm-up."""

import time

from outrider.worker.compiled_loop.run import RootRun
from outrider.worker.launch.serial import SerialScheduler
from outrider.worker.launch.warmup import PROMPT
from outrider.worker.messages import Cancel, Submit
from outrider.worker.sampling.params import SamplingParams

TOKENS = 32


def warm_up_roots(serial: SerialScheduler) -> bool:
    """Step until a run of roots has ended, then free all KV; return True if there was one.

    There is none where passes of either role do not run on the CPU.
    """
    if serial.runs is None:
        return False
    serial.target.row_selector.account.growth_costs = lambda sequences: 0.0  # each is waited for
    now = time.monotonic()
    serial.receive(Submit(1, PROMPT, SamplingParams(), TOKENS, (), True, now), now)
    ran = False
    while not ran and (step := serial.next(time.monotonic())) is not None:
        serial.settle(step, serial.run(step), time.monotonic())
        ran = isinstance(step, RootRun)
    serial.receive(Cancel(1), time.monotonic())
    serial.deliver(time.monotonic())  # the draft's session ends too
    return ran
