"""Sessions of a draft: opening, commits, limits, closing, and the KV cache that they take.

Validates what targets send for sessions. Leaves what runs next, and when growth is sent, to
`scheduler`.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.contract.counters import Counters, new_counters
from outrider.worker.checkpoints.translation import TargetTokens, Translation
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.draft.session import (
    DraftSession,
    SessionTrace,
    check_limits,
    in_range,
    rules_for,
)
from outrider.worker.errors import ProtocolViolation, WorkerError
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.kv.kv_cache import KVCache
from outrider.worker.link.wire import Capacity, Close, CloseReason, Commit, Limits, Open
from outrider.worker.tree import draft_ids
from outrider.worker.tree.draft import DraftTree
from outrider.worker.tree.reading import Reading

MAX_NODES = 512
"""Most live nodes of one session, whatever its limits say."""
DRAINING = "this draft is shutting down"


@dataclass(slots=True)
class DraftSessions:
    """Every session of one draft, by link and number."""

    kv_cache: KVCache
    context: int
    most: int
    """Sessions at once."""
    vocabulary: int
    """Token ids that this model can read; a target may know more."""
    send_buffer: SendBuffer
    """Messages to targets."""
    outbox: list[Any]
    """Messages to this worker's server."""
    links: dict[int, TargetTokens] = field(default_factory=dict)
    """Tokens of each target, by link."""
    live: dict[tuple[int, int], DraftSession] = field(default_factory=dict)
    """Live sessions, by link and number."""
    counters: Counters = field(default_factory=new_counters)
    draining: bool = False
    """True once no more sessions are taken."""
    refused: set[int] = field(default_factory=set)
    """Links that were refused a session for want of room, and were sent no `Capacity` since."""

    def link_up(
        self, link: int, allowed: NDArray[np.bool_], translation: Translation | None = None
    ) -> None:
        """Take sessions of a target; `allowed` [its vocabulary] ids that may be draft tokens,
        `translation`: of a target of another tokenizer. Links of one tokenizer share one, as what
        runners keep for it."""
        if translation is not None:
            known = (one.translation for one in self.links.values() if one.translation is not None)
            translation = next(filter(translation.equals, known), translation)
        self.links[link] = TargetTokens(allowed, translation)

    def link_down(self, link: int) -> None:
        """Drop a link that has ended, and its sessions."""
        self.links.pop(link, None)
        self.send_buffer.drop(link)
        self.refused.discard(link)
        for key in [key for key in self.live if key[0] == link]:
            self.drop(self.live[key], None)
        self.send_capacity()

    def open(self, link: int, message: Open, now: float) -> None:
        """Open a session, or send why it is refused; may raise `ProtocolViolation`."""
        key = (link, message.session)
        target = self.links[link]
        vocabulary = len(target.allowed)
        if key in self.live:
            raise ProtocolViolation("this session is open already")
        if len(message.tokens) == 0 or not in_range(message.tokens, vocabulary):
            raise ProtocolViolation(f"tokens must be 1 or more ids below {vocabulary}")
        check_limits(message.limits)
        try:
            message.sampling.validate(vocabulary)
        except WorkerError as error:
            raise ProtocolViolation(str(error)) from None
        if self.draining:
            self.close(link, message.session, CloseReason.DRAINING, DRAINING)
            return
        same = Reading.same(self.vocabulary)
        reading = same if target.translation is None else target.translation.reading
        ids = draft_ids.read(reading, message.tokens)
        if target.translation is not None:
            ids = target.translation.begun(ids)
        length = len(ids)
        if length >= self.context:
            self.close(link, message.session, CloseReason.TOO_LONG, f"{self.context} tokens fit")
            return
        tokens = np.zeros(self.context + 1, np.int32)
        tokens[:length] = ids
        full = len(self.live) >= self.most
        block_table = None if full else self.kv_cache.admit(tokens[:length], length)
        self.counters.prompt_tokens += length
        if block_table is None:
            self.close(link, message.session, CloseReason.OVERLOADED, "no KV is free")
            self.refused.add(link)
            return
        self.counters.cached_prompt_tokens += block_table.cached
        tree = DraftTree(length, MAX_NODES, reading=reading, tokens_committed=len(message.tokens))
        tree.mark_prefilled(block_table.cached)
        self.live[key] = DraftSession(
            link=link,
            number=message.session,
            block_table=block_table,
            tokens=tokens,
            limits=message.limits,
            rules=rules_for(message, target),
            tree=tree,
            last_commit=now,
            trace=SessionTrace.of(message, now),
        )

    def commit(self, session: DraftSession, message: Commit, now: float) -> bool:
        """Move the root of a session; return False, and close it, where the context is full."""
        if not in_range(message.tokens, len(self.links[session.link].allowed)):
            raise ProtocolViolation("a committed token is outside the vocabulary")
        ids, length = session.tree.read(message.tokens), session.length
        if length + len(ids) >= self.context:
            self.close(
                session.link, session.number, CloseReason.TOO_LONG, f"{self.context} tokens fit"
            )
            return False
        reroot = session.tree.commit(message.position, message.tokens)
        session.tokens[length : length + len(ids)] = ids
        self.advance(session, len(message.tokens), reroot.fall_in, now)
        if session.rules.adjuster is not None:
            session.rules.adjuster.add_answer(message.tokens)
        if len(reroot.sources):
            self.kv_cache.move(session.block_table, reroot.sources, reroot.destinations)
        self.publish(session)
        return True

    def advance(self, session: DraftSession, count: int, fall_in: bool, now: float) -> None:
        """Count a commit of so many tokens, which the tree has followed."""
        if session.limits.nodes_ahead > 0:  # else it brings all that was committed in a rest
            session.step_seconds.add(now - session.last_commit)
        session.last_commit = now
        session.growths *= fall_in
        self.counters.tokens += count

    def limit(self, session: DraftSession, message: Limits) -> None:
        """Set new limits; raise `ProtocolViolation` for impossible ones."""
        check_limits(message)
        if message.error_scale != session.limits.error_scale:
            session.rules = replace(session.rules, error_scale=message.error_scale)
        if message.nodes_ahead > 0 and session.limits.nodes_ahead == 0:
            session.returns = session.needs_prefill
        session.limits = message

    def extend(self, session: DraftSession) -> bool:
        """Extend a session's block table for its next pass; False if KV is short.

        It is closed then, if it needs a pass.
        """
        room, block_table = session.room, session.block_table
        if block_table.room >= room or self.kv_cache.extend(block_table, room):
            return True
        if session.needs_pass:
            self.close(session.link, session.number, CloseReason.OVERLOADED, "no KV is free")
        return False

    def make_room(self, session: DraftSession, nodes: int) -> bool:
        """Extend a session's block table for so many more nodes; False if it cannot be now."""
        room, block_table = session.room + nodes, session.block_table
        if block_table.room >= room:
            return True
        return room <= self.kv_cache.longest and self.kv_cache.extend(block_table, room)

    def publish(self, session: DraftSession) -> None:
        """Let later sessions that begin with the same tokens share their KV."""
        self.kv_cache.publish(
            session.block_table, session.tokens[: session.length], session.tree.cached
        )

    def close(self, link: int, number: int, reason: CloseReason, detail: str) -> None:
        """Send a target the end of a session, and its reason; free the session's KV."""
        self.send_buffer.put(link, Close(number, reason, detail), 0.0)
        self.send_buffer.flush()
        session = self.live.get((link, number))
        if session is not None:
            self.drop(session, reason)

    def drain(self) -> None:
        """Close every session, so that its target opens it elsewhere, and take no more."""
        self.draining = True
        for link, number in list(self.live):
            self.close(link, number, CloseReason.DRAINING, DRAINING)

    def send_capacity(self) -> None:
        """Send `Capacity` to targets that were refused, once there is room again."""
        free = self.most - len(self.live)
        if not self.refused or free == 0 or self.kv_cache.available == 0 or self.draining:
            return
        for link in self.refused:
            self.send_buffer.put(link, Capacity(free, self.kv_cache.available * BLOCK), 0.0)
        self.refused.clear()
        self.send_buffer.flush()

    def drop(self, session: DraftSession, reason: CloseReason | None) -> None:
        """Free a session's KV; `reason` it ended for, None for a lost link."""
        if session.trace is not None:
            self.outbox.append(session.trace.ended(session, reason))
        self.kv_cache.free(session.block_table)
        del self.live[session.link, session.number]
        self.counters.requests_finished += 1
