"""What a draft runs next: missing tokens of sessions, or their best leaves; then growth is sent.

Sessions that lack tokens come first, those that lack the fewest before others, then those whose
trees are smallest, for their targets are nearest to running dry. Whether growth pays is the
target's to say, by limits. Leaves the life of sessions to `draft_sessions`, rows to `draft_pass`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.worker.draft.batch import DraftBatch, DraftPart, parts_of
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.draft.session import DraftSession
from outrider.worker.draft.sessions import MAX_NODES, DraftSessions
from outrider.worker.engine.runner import TopChildren
from outrider.worker.errors import ProtocolViolation
from outrider.worker.kv.block_table import BLOCK
from outrider.worker.kv.kv_cache import KVCache
from outrider.worker.link.wire import Close, CloseReason, Commit, FromTarget, Grow, Limits, Open
from outrider.worker.messages import (
    Counters,
    Drain,
    EngineReport,
    FromPeer,
    LinkDown,
    LinkUp,
    SetPolicy,
)
from outrider.worker.model.rows import joined

SHORT_CATCH_UP = 8
"""Missing tokens that take no longer than a pass over leaves."""
HELD_SECONDS = 0.002
"""Longest that growth is held back, so that several passes travel as one message: a message costs
each side about 150 µs of processor time whatever its size (Zen 5, grpcio 1.85)."""
PROMPT_GROWTHS = 2
"""Growths of a new tree that are not held beyond: the root's children, and theirs. Without the
second the next fall-in finds an empty tree (the demo's pair, simulated: 1.25 tokens a pass, 1.32
with it); without the first nothing is lost, as long as passes are short."""
PASS_MEMORY = 0.9
"""Weight of the past in the mean time of a pass."""


class DraftScheduler:
    """The passes of one draft."""

    def __init__(
        self,
        kv_cache: KVCache,
        context: int,
        max_sessions: int,
        vocabulary: int,
        held: SendBuffer,
        outbox: list[Any] | None = None,
    ) -> None:
        """`vocabulary`: token ids that this model can read; `held`: what is sent to targets."""
        self.kv_cache = kv_cache
        self.held = held
        self.outbox: list[Any] = [] if outbox is None else outbox
        self.life = DraftSessions(kv_cache, context, max_sessions, vocabulary, held, self.outbox)
        self.pass_seconds = 0.0
        """Running mean of one pass that expands leaves."""
        self.holds = True
        """Whether growth is held back for others to travel with."""

    @property
    def links(self) -> dict[int, NDArray[np.bool_]]:
        """By link: [vocabulary] ids on which both tokenizers agree."""
        return self.life.links

    @property
    def sessions(self) -> dict[tuple[int, int], DraftSession]:
        """By link and number."""
        return self.life.live

    @property
    def counters(self) -> Counters:
        """So far."""
        return self.life.counters

    def receive(self, message: Any, now: float) -> None:
        """Applies one message of the server process."""
        match message:
            case FromPeer(link=link, messages=messages):
                for part in messages:
                    self.apply(link, part, now)
            case LinkUp(link=link, allowed=allowed):
                self.links[link] = allowed
            case LinkDown(link=link):
                self.life.link_down(link)
            case Drain():
                self.life.drain()
            case SetPolicy():
                pass  # a draft's limits come from its targets
            case _:
                raise TypeError(f"a draft's engine was sent {message!r}")

    def next(self, now: float) -> DraftBatch | None:
        """The next pass; None if every session is at its limit."""
        needs_pass = [s for s in self.sessions.values() if s.needs_pass]
        if not needs_pass:
            self.held.flush()
            return None
        needs_pass.sort(key=lambda s: (not s.needs_prefill, s.uncomputed_tokens, len(s.tree)))
        parts = list(parts_of(filter(self.life.has_room, needs_pass), self.links))
        if not parts:
            return self.next(now)  # sessions without room were closed: each turn has fewer
        if any(p.session.needs_prefill and p.rank.rows.count > SHORT_CATCH_UP for p in parts):
            self.held.flush()  # a long pass: what is held of other sessions must not wait for it
        return DraftBatch(parts, joined([part.rank.rows for part in parts]), now)

    def fail_next(self, detail: str, now: float) -> bool:
        """Blames no session: a draft that is started afresh costs no target a token."""
        return False

    def patience(self, now: float) -> float | None:
        """A draft at its limits waits for a message, however long."""
        return None

    def settle(self, step: DraftBatch, outputs: Sequence[TopChildren], now: float) -> None:
        """Turns the ranked children into nodes and sends them, at once or with those to come."""
        if not any(part.session.needs_prefill for part in step.parts):
            self.pass_seconds += (1 - PASS_MEMORY) * (now - step.started - self.pass_seconds)
        self.counters.passes += 1
        self.counters.draft_rows += step.rows.count
        for part, output in zip(step.parts, outputs, strict=True):
            self._settle(part, output)
            self._grow(part.session, now)

    def fail(self, step: DraftBatch, detail: str, now: float) -> None:
        """Closes the sessions whose pass could not be run."""
        for session in (part.session for part in step.parts):
            if (session.link, session.number) in self.sessions:
                self.life.close(session.link, session.number, CloseReason.EVICTED, detail)
        self.life.tell_room()

    def report(self) -> EngineReport:
        """Counters so far."""
        self.counters.kv_slots_used = self.kv_cache.used * BLOCK
        self.counters.kv_slots = self.kv_cache.blocks * BLOCK
        return EngineReport(self.counters, len(self.sessions), 0, self.life.draining)

    def apply(self, link: int, message: FromTarget, now: float) -> None:
        """One message of a target; a violation closes its session."""
        try:
            match message:
                case Open():
                    self.life.open(link, message, now)
                case Commit():
                    session = self.sessions[link, message.session]
                    if self.life.commit(session, message, now):
                        self._grow(session, now)
                case Limits():
                    self.life.limit(self.sessions[link, message.session], message)
                case Close():
                    self.life.drop(self.sessions[link, message.session], message.reason)
        except KeyError:
            return  # the session has ended here; the target hears or has heard of it
        except ProtocolViolation as error:
            self.life.close(link, message.session, CloseReason.INVALID, str(error))
        self.life.tell_room()

    def _settle(self, part: DraftPart, output: TopChildren) -> None:
        session, tree = part.session, part.session.tree
        if session.trace is not None:
            session.trace.passes += 1
            session.trace.rows += part.rank.rows.count
        if session.needs_prefill:
            tree.prefilled(min(part.rank.rows.count, len(tree.pending)))
        if len(part.leaves):
            tree.expanded(part.leaves, part.offsets)
            tree.offer(part.leaves, output.tokens, output.logprobs, session.depth_bonus)
        self.life.publish(session)

    def _grow(self, session: DraftSession, now: float) -> None:
        """Makes nodes of the best candidates, as far as limits allow; sends them if it is time."""
        if session.needs_prefill or session.limits.nodes_ahead == 0:
            return
        most = min(session.limits.nodes_ahead, MAX_NODES)
        before = session.tree.last_id
        while (
            growth := session.tree.send(most, session.max_new_nodes(self.pass_seconds))
        ) is not None:
            grow = Grow(
                session.number,
                growth.root_position,
                growth.first_id,
                growth.parents,
                growth.tokens,
                growth.logprobs,
            )
            self.held.put(session.link, grow, now)
            if len(session.leaves(1)) > 0:
                break  # the next pass has work; what is left may be outdone by its children
        session.growths += session.tree.last_id > before
        late = now + self.pass_seconds - self.held.since > HELD_SECONDS  # after one more pass
        if late or session.growths == PROMPT_GROWTHS or not self.holds:
            self.held.flush()
