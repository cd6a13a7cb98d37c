"""A draft that grows one session's tree under the real scheduler and hears of commits.

Leaves timing's figures to `timed_steps` and what is compared to `decode_step`. A random model's
draft tokens mean nothing, but its passes are as large as any.
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.gpu.draft_runner import GpuDraftRunner
from outrider.worker.gpu.model import GpuModel
from outrider.worker.link.wire import Close, CloseReason, Commit, Limits, Open
from outrider.worker.sampling.params import SamplingParams

LINK, SESSION = 1, 1
GREEDY = SamplingParams()


class GrowingDraft:
    """One session whose prompt has `context` tokens; `width` leaves are expanded in a pass."""

    def __init__(self, model: GpuModel, context: int, width: int, chained: int) -> None:
        vocabulary = model.config.vocab
        self.runner = GpuDraftRunner(model, None, vocabulary, chained=chained)
        send_buffer = SendBuffer(self._send, coalesce=False)
        self.scheduler = DraftScheduler(
            model.kv_cache, model.kv_cache.longest, 1, vocabulary, send_buffer
        )
        self.scheduler.sessions.link_up(LINK, np.ones(vocabulary, np.bool_))
        prompt = np.random.default_rng(context).integers(0, vocabulary, context, np.int32)
        limits = Limits(SESSION, depth=32, width=width, nodes_ahead=96, error_scale=1.0)
        self.scheduler.apply(LINK, Open(SESSION, prompt, GREEDY, limits, context), 0.0)
        while self.session.needs_prefill and self.step():
            pass

    @property
    def session(self) -> Any:
        """What is drafted for."""
        return self.scheduler.sessions.live[LINK, SESSION]

    def step(self) -> bool:
        """One pass, asked for and settled; false where there is nothing to run."""
        now = time.monotonic()
        step = self.scheduler.next(now)
        if step is None:
            return False
        self.scheduler.settle(step, self.runner.run(step), now)
        return True

    def seconds(self, passes: int) -> float:
        """Of a pass, over at most `passes` of them, after a commit of the best first child."""
        self._commit()
        begin, count = time.perf_counter(), 0
        while count < passes and self.step():
            count += 1
        if not count:
            raise RuntimeError("the tree is at its limits: nothing was run")
        return (time.perf_counter() - begin) / count

    def close(self) -> None:
        """Give the session's KV back."""
        self.scheduler.apply(LINK, Close(SESSION, CloseReason.FINISHED), time.monotonic())

    def _commit(self) -> None:
        tree = self.session.tree
        first = np.flatnonzero(tree.nodes.depth == 1)
        best = first[tree.nodes.score[first].argmax()]
        tokens = tree.nodes.token[best : best + 1].astype(np.int32)
        now = time.monotonic()
        self.scheduler.apply(LINK, Commit(SESSION, tree.root_position, tokens), now)

    def _send(self, link: int, messages: Sequence[object]) -> None:
        """Drop what is sent."""
