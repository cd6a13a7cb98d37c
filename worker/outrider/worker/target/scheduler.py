"""What a target runs next: roots of sequences past their prompts, nodes, and chunks of prompts.

Each step runs the root of every sequence that is past its prompt, the nodes that `choosing` picks
for them, and chunks of the prompts of others. Leaves who has KV to `admission`, rows to
`target_pass`, what a pass means to `committer`, drafts to `sessions`.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Several
from typing import Any

import numpy as np

from outrider.worker.engine.runner import SampledTokens
from outrider.worker.kv.block_table import BLOCK
from outrider.worker.kv.kv_cache import KVCache
from outrider.worker.messages import (
    Cancel,
    EngineReport,
    Finish,
    FromPeer,
    LinkDown,
    LinkUp,
    SetPolicy,
    Submit,
)
from outrider.worker.sampling.logits_processor import LogitsProcessors
from outrider.worker.target.admission import Admission
from outrider.worker.target.batch import TargetBatch, TargetPart
from outrider.worker.target.commit import Committer
from outrider.worker.target.draft_sessions import TargetSessions
from outrider.worker.target.selection import NOTHING, RowSelector
from outrider.worker.target.sequence import Sequence
from outrider.worker.target.stats import Stats
from outrider.worker.target.verify_rows import chunk_rows, verified_part
from outrider.worker.target.waiting_queue import WaitingQueue
from outrider.worker.tree.mirror import Mirror

PROMPT_CHUNK = 64
"""Prompt tokens of one pass."""
COMPILING_SECONDS = 0.005
"""How often an idle engine looks whether the grammar of its next request is compiled."""
MIN_CHUNK = 16
"""Rows of a pass that are left for prompts, if there are any."""


class TargetScheduler:
    """Every request of one target."""

    def __init__(
        self,
        kv_cache: KVCache,
        context: int,
        max_running: int,
        sessions: TargetSessions,
        row_selector: RowSelector,
        outbox: list[Any],
        logits_processors: LogitsProcessors,
    ) -> None:
        self.kv_cache = kv_cache
        self.context = context
        self.sessions = sessions
        self.row_selector = row_selector
        self.outbox = outbox
        self.stats = Stats(row_selector)
        self.admission = Admission(
            kv_cache, max_running, logits_processors, row_selector, self.stats
        )
        self.committer = Committer(
            kv_cache, self.running, sessions, row_selector, self.stats, outbox
        )
        self._turn = 0
        """Where the next pass begins when one cannot hold them all."""
        self._at: Sequence | None = None
        """Whose part of the next pass is being made."""

    @property
    def running(self) -> list[Sequence]:
        """Those that have KV, in order of seniority."""
        return self.admission.running

    @property
    def waiting(self) -> WaitingQueue:
        """Those that have none."""
        return self.admission.waiting

    def receive(self, message: Any, now: float) -> None:
        """Applies one message of the server process."""
        match message:
            case FromPeer(link=link, messages=messages):
                for part in messages:
                    self.sessions.receive(link, part, now)
            case Submit():
                self.waiting.put(self._sequence(message))
            case Cancel(request=request, finish=finish):
                self._cancel(request, finish, now)
            case SetPolicy(policy=policy):
                self.row_selector.set_policy(policy, now)
            case LinkUp(link=link, allowed=allowed, room=room):
                self.sessions.link_up(link, allowed, room)
                self.row_selector.restart(now)
            case LinkDown(link=link):
                self.sessions.link_down(link)
            case _:
                raise TypeError(f"a target's engine was sent {message!r}")

    def next(self, now: float, may_wait: bool = True) -> TargetBatch | None:
        """The next pass; None if there is no request, or if waiting for growth is worth more."""
        self._expire(now)
        self.admission.admit(now)
        if not self.running:
            self.stats.settled_at = None
            return None
        decoding, prompts = self._share_out()
        for sequence in self._each(self.running):
            self.sessions.tend(sequence, now)
        prompt_count = sum(part.rows.count for part in prompts)
        chosen = self.row_selector.choose(decoding, prompt_count, now, may_wait)
        if chosen is None:
            return None
        turns = self._each(decoding)
        verified = [verified_part(*pair) for pair in zip(turns, chosen.choices, strict=True)]
        parts = (*verified, *prompts)
        return TargetBatch(parts, len(verified), chosen.expected_seconds, chosen.plain, now)

    def fail_next(self, detail: str, now: float) -> bool:
        """Ends the request whose draft or whose rows `next` failed at; False if there was none."""
        sequence, self._at = self._at, None
        if sequence is not None:
            self.committer.end(sequence, Finish.FAILED, now, detail)
        return sequence is not None

    def patience(self, now: float) -> float | None:
        """Seconds until waiting, for growth or a grammar, ends; None if there is no request."""
        if self.waiting and not self.running:
            return COMPILING_SECONDS
        return self.row_selector.seconds_left(now) if self.running else None

    def settle(self, step: TargetBatch, outputs: Several[SampledTokens], now: float) -> None:
        """Walks, commits and re-roots, part by part."""
        tokens = 0
        for part, drawn in zip(step.parts, outputs, strict=True):
            tokens += self.committer.settle(part, drawn, step.plain.step, step.started, now)
        self.stats.stepped(step, tokens, now)

    def fail(self, step: TargetBatch, detail: str, now: float) -> None:
        """Ends the requests whose pass could not be run."""
        for part in step.parts:
            if part.sequence in self.running:
                self.committer.end(part.sequence, Finish.FAILED, now, detail)

    def report(self) -> EngineReport:
        """Counters so far."""
        counters, patience = self.stats.counters, self.row_selector.patience
        counters.draft_wait_seconds = patience.seconds
        counters.wait_gain_predicted = patience.predicted_gain
        counters.wait_gain_realised = patience.realised_gain
        counters.growth_dropped = self.sessions.dropped
        counters.kv_slots_used = self.kv_cache.used * BLOCK
        counters.kv_slots = self.kv_cache.blocks * BLOCK
        return EngineReport(
            counters,
            len(self.running),
            len(self.waiting),
            drafting=self.row_selector.drafting,
            last_rows=self.stats.last_rows,
            last_node_rows=self.stats.last_node_rows,
        )

    def _sequence(self, submit: Submit) -> Sequence:
        """A request before it holds any KV."""
        tokens = np.zeros(self.context + 1, np.int32)
        tokens[: len(submit.prompt)] = submit.prompt
        sequence = Sequence(
            submit=submit,
            tokens=tokens,
            length=len(submit.prompt),
            mirror=Mirror(root_position=len(submit.prompt) - 1),
            calibration=self.row_selector.calibration_for(submit),
            ends=np.array(submit.end_ids, np.int32),
        )
        sequence.usage.prompt_tokens = len(submit.prompt)
        return sequence

    def _each(self, sequences: Several[Sequence]) -> Iterator[Sequence]:
        """The sequences, each to blame for what fails until the next one's turn."""
        for sequence in sequences:
            self._at = sequence
            yield sequence
        self._at = None

    def _share_out(self) -> tuple[list[Sequence], list[TargetPart]]:
        """Who decodes in the next pass, and the prompt chunks that go along."""
        decoding = [
            s for s in tuple(self.running) if not s.in_prompt and self.admission.has_room(s)
        ]
        prompts = [s for s in self.running if s.in_prompt]
        most = self.row_selector.row_capacity
        if prompts:
            most -= min(MIN_CHUNK, most // 2)
        if len(decoding) > most:  # in turns
            self._turn = (self._turn + most) % len(decoding)
            decoding = (decoding[self._turn :] + decoding[: self._turn])[:most]
        left = min(PROMPT_CHUNK, self.row_selector.row_capacity - len(decoding))
        parts = []
        for sequence in prompts:
            if left == 0:
                break
            parts.append(TargetPart(sequence, chunk_rows(sequence, left), NOTHING))
            left -= parts[-1].rows.count
        return decoding, parts

    def _expire(self, now: float) -> None:
        """Ends what has waited for its first step for too long, unrun."""
        for sequence in self.waiting.expired(now):
            waited = now - sequence.submit.arrived
            self.committer.close(
                sequence, Finish.EXPIRED, now, f"no room for this request in {waited:.1f} s"
            )

    def _cancel(self, request: int, finish: Finish, now: float) -> None:
        for sequence in self.running:
            if sequence.submit.request == request:
                self.committer.end(sequence, finish, now)
                return
        waiting = self.waiting.remove(request)
        if waiting is not None:
            self.committer.close(waiting, finish, now)
