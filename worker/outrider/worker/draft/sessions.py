"""The life of a draft's sessions: opened, moved along by commits, limited, closed; and their KV.

Checks what targets say of sessions. What runs next, and when growth is sent, are
`draft_scheduler`'s.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.draft.session import (
    DraftSession,
    SessionTrace,
    adjuster_for,
    check_limits,
    in_range,
)
from outrider.worker.errors import ProtocolViolation, WorkerError
from outrider.worker.kv.block_table import BLOCK
from outrider.worker.kv.kv_cache import KVCache
from outrider.worker.link.wire import Capacity, Close, CloseReason, Commit, Limits, Open
from outrider.worker.messages import Counters
from outrider.worker.tree.draft import DraftTree
from outrider.worker.tree.walk import Ints

MAX_NODES = 512
"""Most live nodes of one session, whatever its limits say."""
STEP_MEMORY = 0.9
"""Weight of the past in a session's mean time between commits."""
DRAINING = "this draft is shutting down"


@dataclass(slots=True)
class DraftSessions:
    """Every session of one draft."""

    kv_cache: KVCache
    context: int
    most: int
    """Sessions at once."""
    vocabulary: int
    """Token ids that this model can read; a target may know more."""
    held: SendBuffer
    """What is sent to targets."""
    outbox: list[Any]
    """What is sent to this worker's server."""
    links: dict[int, NDArray[np.bool_]] = field(default_factory=dict)
    """By link: [vocabulary] ids on which both tokenizers agree."""
    live: dict[tuple[int, int], DraftSession] = field(default_factory=dict)
    """By link and number."""
    counters: Counters = field(default_factory=Counters)
    draining: bool = False
    """Whether it has been told to take no more sessions."""
    refused: set[int] = field(default_factory=set)
    """Links that were refused a session for want of room, and have not heard of any since."""

    def link_down(self, link: int) -> None:
        """A target is lost, and its sessions with it."""
        self.links.pop(link, None)
        self.held.drop(link)
        self.refused.discard(link)
        for key in [key for key in self.live if key[0] == link]:
            self.drop(self.live[key], None)
        self.tell_room()

    def open(self, link: int, message: Open, now: float) -> None:
        """Opens a session, or says why it cannot be had; may raise `ProtocolViolation`."""
        key = (link, message.session)
        vocabulary = len(self.links[link])
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
        if len(message.tokens) >= self.context:
            self.close(link, message.session, CloseReason.TOO_LONG, f"{self.context} tokens fit")
            return
        length = len(message.tokens)
        tokens = np.zeros(self.context + 1, np.int32)
        tokens[:length] = self._readable(message.tokens)
        full = len(self.live) >= self.most
        block_table = None if full else self.kv_cache.admit(tokens[:length], length)
        self.counters.prompt_tokens += length
        if block_table is None:
            self.close(link, message.session, CloseReason.OVERLOADED, "no KV is free")
            self.refused.add(link)
            return
        self.counters.cached_prompt_tokens += block_table.cached
        tree = DraftTree(length, int(tokens[length - 1]), MAX_NODES)
        tree.prefilled(block_table.cached)
        self.live[key] = DraftSession(
            link=link,
            number=message.session,
            block_table=block_table,
            tokens=tokens,
            length=length,
            sampling=message.sampling,
            limits=message.limits,
            tree=tree,
            heard=now,
            adjuster=adjuster_for(message, vocabulary),
            trace=SessionTrace.of(message, now),
        )

    def commit(self, session: DraftSession, message: Commit, now: float) -> bool:
        """Moves the root of a session; False where there is no room for more, which closes it."""
        count = len(message.tokens)
        if not in_range(message.tokens, len(self.links[session.link])):
            raise ProtocolViolation("a committed token is outside the vocabulary")
        if session.length + count >= self.context:
            self.close(
                session.link, session.number, CloseReason.TOO_LONG, f"{self.context} tokens fit"
            )
            return False
        done = session.tree.commit(message.position, message.tokens)
        session.tokens[session.length : session.length + count] = self._readable(message.tokens)
        session.length += count
        if session.adjuster is not None:
            session.adjuster.add_answer(message.tokens)
        if len(done.sources):
            self.kv_cache.move(session.block_table, done.sources, done.destinations)
        self.publish(session)
        session.step_seconds += (1 - STEP_MEMORY) * (now - session.heard - session.step_seconds)
        session.heard = now
        session.growths *= done.fall_in
        self.counters.tokens += count
        return True

    def limit(self, session: DraftSession, message: Limits) -> None:
        """Takes new limits; raises `ProtocolViolation`."""
        check_limits(message)
        session.limits = message

    def has_room(self, session: DraftSession) -> bool:
        """Makes room for the next pass of a session; closes it if there is none."""
        if self.kv_cache.extend(session.block_table, session.room):
            return True
        self.close(session.link, session.number, CloseReason.OVERLOADED, "no KV is free")
        return False

    def publish(self, session: DraftSession) -> None:
        """Lets later sessions that begin with the same tokens find their KV."""
        self.kv_cache.publish(
            session.block_table, session.tokens[: session.length], session.tree.cached
        )

    def _readable(self, tokens: Ints) -> Ints:
        """Ids that this model knows; another one's stand for something it does not know."""
        return np.minimum(tokens, np.int32(self.vocabulary - 1))

    def close(self, link: int, number: int, reason: CloseReason, detail: str) -> None:
        """Tells a target that a session has ended, and why; frees what it holds."""
        self.held.put(link, Close(number, reason, detail), 0.0)
        self.held.flush()
        session = self.live.get((link, number))
        if session is not None:
            self.drop(session, reason)

    def drain(self) -> None:
        """Closes every session, so that its target opens it elsewhere, and takes no more."""
        self.draining = True
        for link, number in list(self.live):
            self.close(link, number, CloseReason.DRAINING, DRAINING)

    def tell_room(self) -> None:
        """Tells targets that were refused once that there is room again."""
        free = self.most - len(self.live)
        if not self.refused or free == 0 or self.kv_cache.available == 0 or self.draining:
            return
        for link in self.refused:
            self.held.put(link, Capacity(free, self.kv_cache.available * BLOCK), 0.0)
        self.refused.clear()
        self.held.flush()

    def drop(self, session: DraftSession, reason: CloseReason | None) -> None:
        """Frees what a session holds; `reason` it ended for, None for a lost link."""
        if session.trace is not None:
            self.outbox.append(session.trace.ended(session, reason))
        self.kv_cache.free(session.block_table)
        del self.live[session.link, session.number]
        self.counters.requests_finished += 1
