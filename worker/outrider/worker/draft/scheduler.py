"""The draft's scheduler: prefill of sessions, expansion of their best leaves, sending of growth.

Sessions that need prefill come first, those with the fewest uncomputed tokens before others, then
those whose trees are smallest, for their targets run out of nodes first. So do sessions that return
from a rest, unless `catches_up_apart`: then they get passes of their own. Leaves to the target, by
limits, whether growth pays; opening and closing to `sessions`, rows to `batch`.
"""

import math
from collections.abc import Sequence
from typing import Any

from outrider.contract.settings import MAX_DEPTH
from outrider.worker.draft.batch import MAX_WIDTH, DraftBatch, DraftPart, PassRows, batch_of
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.draft.session import DraftSession, DraftTerms, RunningMean
from outrider.worker.draft.sessions import DraftSessions
from outrider.worker.engine.runner import TopChildren
from outrider.worker.errors import ProtocolViolation
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.kv.kv_cache import KVCache
from outrider.worker.link.wire import Close, CloseReason, Commit, FromTarget, Grow, Limits, Open
from outrider.worker.messages import Drain, EngineReport, FromPeer, LinkDown, LinkUp, SetPolicy
from outrider.worker.tree.draft_rows import DraftRows

SHORT_PREFILL = 8
"""Rows of prefill that take no longer than a pass over leaves."""
FIRST_GROWTHS = 2
"""Growths of a new tree after which the buffer is sent: the root's children, and theirs. Without
the second the next fall-in finds an empty tree (the demo's pair, simulated: 1.25 tokens per pass,
1.32 with it); without the first nothing is lost, as long as passes are short."""


class DraftScheduler:
    """Chooses the passes of one draft, and when growth is sent."""

    def __init__(
        self,
        kv_cache: KVCache,
        context: int,
        max_sessions: int,
        vocabulary: int,
        send_buffer: SendBuffer,
        outbox: list[Any] | None = None,
    ) -> None:
        """`vocabulary`: token ids that this model can read; `send_buffer`: messages to targets."""
        self.kv_cache = kv_cache
        self.send_buffer = send_buffer
        self.outbox: list[Any] = [] if outbox is None else outbox
        self.sessions = DraftSessions(
            kv_cache, context, max_sessions, vocabulary, send_buffer, self.outbox
        )
        self.pass_seconds = RunningMean()
        """Of one pass that expands leaves."""
        self.host_seconds = 0.0
        self.least_score = -math.inf
        """Log-probability of a leaf's path below which only the best leaf is expanded."""
        self.catches_up_apart = False
        """True if sessions that return from a rest are left to `catch_up`."""
        self.allow(PassRows())

    def allow(self, most: PassRows) -> None:
        """Let passes have so many rows from now on; the runner has room for them."""
        self._most = most
        self.rows = DraftRows(sum(most), MAX_DEPTH)
        """Room for the rows of a pass."""

    def receive(self, message: Any, now: float) -> None:
        """Apply one message of the server process."""
        match message:
            case FromPeer(link=link, messages=messages):
                for part in messages:
                    self.apply(link, part, now)
            case LinkUp():
                self.sessions.link_up(message.link, message.allowed, message.translation)
            case LinkDown(link=link):
                self.sessions.link_down(link)
            case Drain():
                self.sessions.drain()
            case SetPolicy():
                pass  # a draft's limits come from its targets
            case _:
                raise TypeError(f"a draft's engine was sent {message!r}")

    def receive_during_pass(self, messages: Sequence[Any], now: float) -> Sequence[Any]:
        """Apply nothing: a commit would move the tree whose leaves the pass has expanded."""
        return messages

    def next(self, now: float) -> DraftBatch | None:
        """Return the next pass; None if every session is at its limit."""
        growing = [session for session in self.sessions.live.values() if session.may_grow]
        if self.catches_up_apart:
            growing = [session for session in growing if not session.returns]
        if len(growing) > 1:
            growing.sort(key=lambda s: (not s.needs_prefill, s.uncomputed_tokens, len(s.tree)))
        batch = batch_of(
            filter(self.sessions.extend, growing), self.rows, now, self._most, self.least_score
        )
        if batch is None or batch.prefill > SHORT_PREFILL:
            self.send_buffer.flush()  # a long pass: other sessions' growth must not wait for it
        return batch

    def catch_up(self, now: float, rows: int) -> DraftBatch | None:
        """Return a pass over at most so many rows of sessions that return from a rest, those with
        the smallest lag first; None if there are none."""
        returning = [s for s in self.sessions.live.values() if s.returns and s.may_grow]
        if not returning:
            return None
        returning.sort(key=lambda session: session.uncomputed_tokens)
        most = self._most._replace(prefill=rows)
        return batch_of(
            filter(self.sessions.extend, returning), self.rows, now, most, self.least_score
        )

    def max_wait(self, now: float) -> float | None:
        """Return None: a draft at its limits waits for a message, without limit."""
        return None

    def settle(self, step: DraftBatch, outputs: Sequence[TopChildren], now: float) -> None:
        """Make nodes of the top children and send them, at once or with those to come."""
        self.count_pass(step.rows.count, step.prefill, now - step.started)
        for part, output in zip(step.parts, outputs, strict=True):
            self._settle(part, output)
            self._grow(part.session, now)

    def terms(self, session: DraftSession) -> DraftTerms:
        """Return the bounds of a session that grows in compiled code."""
        block_table = session.block_table
        return DraftTerms(
            nodes_ahead=session.limits.nodes_ahead,
            width=min(session.limits.width, MAX_WIDTH, self._most.leaves),
            depth=session.depth_limit,
            least=self.least_score,
            max_new_nodes=session.max_new_nodes(self.pass_seconds.value),
            prefill_rows=self._most.prefill,
            room=block_table.room,
            published=block_table.published,
            most_tokens=self.sessions.context,
        )

    @property
    def most_rows(self) -> PassRows:
        """Most rows of a pass."""
        return self._most

    def count_pass(self, rows: int, prefill: int, seconds: float) -> None:
        """Count a pass over so many rows, `prefill` of committed tokens among them."""
        if not prefill:
            self.pass_seconds.add(seconds)
        self.sessions.counters.passes += 1
        self.sessions.counters.draft_rows += rows

    def fail(self, step: DraftBatch, detail: str, now: float) -> None:
        """Close the sessions whose pass could not be run."""
        for session in (part.session for part in step.parts):
            if (session.link, session.number) in self.sessions.live:
                self.sessions.close(session.link, session.number, CloseReason.EVICTED, detail)
        self.sessions.send_capacity()

    def report(self) -> EngineReport:
        """Return the counters so far."""
        counters = self.sessions.counters
        counters.kv_slots_used = self.kv_cache.used * BLOCK
        counters.kv_slots = self.kv_cache.blocks * BLOCK
        return EngineReport(counters, len(self.sessions.live), draining=self.sessions.draining)

    def apply(self, link: int, message: FromTarget, now: float) -> None:
        """Apply one message of a target; a violation closes its session."""
        live = self.sessions.live
        try:
            match message:
                case Open():
                    self.sessions.open(link, message, now)
                case Commit():
                    session = live[link, message.session]
                    if self.sessions.commit(session, message, now):
                        self._grow(session, now)
                case Limits():
                    self.sessions.limit(live[link, message.session], message)
                case Close():
                    self.sessions.drop(live[link, message.session], message.reason)
        except KeyError:
            return  # the session has ended here; its target knows, or a Close is on its way
        except ProtocolViolation as error:
            self.sessions.close(link, message.session, CloseReason.INVALID, str(error))
        self.sessions.send_capacity()

    def _settle(self, part: DraftPart, output: TopChildren) -> None:
        session, tree = part.session, part.session.tree
        session.count_pass(part.count)
        if session.needs_prefill:
            tree.mark_prefilled(part.count)
            session.returns = session.returns and session.needs_prefill
            self.sessions.publish(session)
        if len(part.leaves):
            tree.offer(
                part.leaves, part.offsets, output.tokens, output.logprobs, session.depth_bonus
            )

    def _grow(self, session: DraftSession, now: float) -> None:
        """Make nodes of the best candidates, as far as limits allow; send them if they are due."""
        if session.needs_prefill or session.limits.nodes_ahead == 0:
            return
        growth = session.tree.send(
            session.limits.nodes_ahead,
            session.max_new_nodes(self.pass_seconds.value),
            session.depth_limit,
        )
        if growth is not None:
            self.send_buffer.put(session.link, Grow(session.number, growth), now)
            session.growths += 1
        next_growth = now + self.pass_seconds.value
        if session.growths == FIRST_GROWTHS or self.send_buffer.is_late(next_growth):
            self.send_buffer.flush()
