"""Warm-up of the compiled loop of a colocated draft's roots, with the schedulers of a warm-up."""

import time

from outrider.worker.compiled_loop.run import RootRun
from outrider.worker.launch.colocated import ColocatedScheduler
from outrider.worker.launch.warmup import PROMPT
from outrider.worker.messages import Cancel, Submit
from outrider.worker.sampling.params import SamplingParams

TOKENS = 32


def warm_up_roots(colocated: ColocatedScheduler) -> bool:
    """Step until a run of roots has ended, then free all KV; return True if there was one.

    There is none where passes of either role do not run on the CPU.
    """
    if colocated.runs is None:
        return False
    colocated.target.row_selector.account.growth_costs = lambda sequences: 0.0  # each is waited for
    now = time.monotonic()
    colocated.receive(Submit(1, PROMPT, SamplingParams(), TOKENS, (), True, now), now)
    ran = False
    while not ran and (step := colocated.next(time.monotonic())) is not None:
        colocated.settle(step, colocated.run(step), time.monotonic())
        ran = isinstance(step, RootRun)
    colocated.receive(Cancel(1), time.monotonic())
    colocated.deliver(time.monotonic())  # the draft's session ends too
    return ran
