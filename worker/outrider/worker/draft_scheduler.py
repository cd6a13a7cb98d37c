"""What a draft runs next: missing tokens of sessions, or their best leaves; then growth is sent.

Sessions that lack tokens come first, those that lack the fewest before others, then those whose
trees are smallest, for their targets are nearest to running dry. Whether growth pays is the
target's to say, by limits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.worker.draft_session import (
    DraftSession,
    SessionTrace,
    adjuster_for,
    check_limits,
    in_range,
)
from outrider.worker.draft_tree import DraftTree
from outrider.worker.errors import ProtocolViolation, WorkerError
from outrider.worker.held import Held
from outrider.worker.kv_pool import KVPool
from outrider.worker.messages import (
    Counters,
    Drain,
    FromPeer,
    LinkDown,
    LinkUp,
    Report,
    SetPolicy,
)
from outrider.worker.region import BLOCK
from outrider.worker.rows import Rows, joined, prompt_rows, tree_rows
from outrider.worker.runner import Rank, Ranked
from outrider.worker.shaping import NO_PATH
from outrider.worker.tree import ROOT, Ints
from outrider.worker.wire import (
    Capacity,
    Close,
    CloseReason,
    Commit,
    FromTarget,
    Grow,
    Limits,
    Open,
)

SHORT_CATCH_UP = 8
"""Missing tokens that take no longer than a pass over leaves."""
PROMPT_CHUNK = 64
"""Missing tokens that are run in one pass."""
HELD_SECONDS = 0.002
"""Longest that growth is held back, so that several passes travel as one message: a message costs
each side about 150 µs of processor time whatever its size (Zen 5, grpcio 1.85)."""
PROMPT_GROWTHS = 2
"""Growths of a new tree that are not held beyond: the root's children, and theirs. Without the
second the next fall-in finds an empty tree (the demo's pair, simulated: 1.25 tokens a pass, 1.32
with it); without the first nothing is lost, as long as passes are short."""
PASS_MEMORY = 0.9
LEAF_ROWS = 32
"""Leaves of all sessions together that one pass expands: beyond it, those that wait for the pass
lose more than its rows share."""
LEAST_LEAF_ROWS = 16
"""Of those, the ones that missing tokens never take: a long prompt stops no other tree."""
BRANCH = 8
"""Children ranked for each expanded leaf."""
MAX_NODES = 512
"""Most live nodes of one session, whatever its limits say."""
MAX_WIDTH = 64
DRAINING = "this draft is shutting down"
ROOT_LEAF = np.array([ROOT], np.int32)


@dataclass(frozen=True, slots=True)
class Part:
    """One session's rows; `leaves` is empty for a chunk that does not reach the root."""

    session: DraftSession
    leaves: Ints
    offsets: Ints
    """[leaves] where their KV goes."""
    rank: Rank


@dataclass(frozen=True, slots=True)
class Step:
    """One pass."""

    parts: Sequence[Part]
    rows: Rows
    """Of all parts, in their order."""
    started: float


@dataclass(slots=True)
class DraftScheduler:
    """Every session of one draft."""

    pool: KVPool
    context: int
    max_sessions: int
    vocabulary: int
    """Token ids that this model can read; a target may know more."""
    held: Held
    """What is sent to targets."""
    outbox: list[Any] = field(default_factory=list)
    links: dict[int, NDArray[np.bool_]] = field(default_factory=dict)
    """By link: [vocabulary] ids on which both tokenizers agree."""
    sessions: dict[tuple[int, int], DraftSession] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)
    pass_seconds: float = 0.0
    """Running mean of one pass that expands leaves."""
    holds: bool = True
    """Whether growth is held back for others to travel with."""
    draining: bool = False
    """Whether it has been told to take no more sessions."""
    refused: set[int] = field(default_factory=set)
    """Links that were refused a session for want of room, and have not heard of any since."""

    def receive(self, message: Any, now: float) -> None:
        """Applies one message of the server process."""
        match message:
            case FromPeer(link=link, messages=messages):
                for part in messages:
                    self.apply(link, part, now)
            case LinkUp(link=link, allowed=allowed):
                self.links[link] = allowed
            case LinkDown(link=link):
                self.links.pop(link, None)
                self.held.drop(link)
                self.refused.discard(link)
                self._drop_all(link)
                self._tell_room()
            case Drain():
                self._drain()
            case SetPolicy():
                pass  # a draft's limits come from its targets
            case _:
                raise TypeError(f"a draft's engine was sent {message!r}")

    def next(self, now: float) -> Step | None:
        """The next pass; None if every session is at its limit."""
        hungry = [s for s in self.sessions.values() if s.hungry]
        if not hungry:
            self.held.flush()
            return None
        hungry.sort(key=lambda s: (not s.lacks_tokens, s.missing, len(s.tree)))
        parts = list(self._parts(hungry))
        if not parts:
            return self.next(now)  # sessions without room were closed: each turn has fewer
        if any(p.session.lacks_tokens and p.rank.rows.count > SHORT_CATCH_UP for p in parts):
            self.held.flush()  # a long pass: what is held of other sessions must not wait for it
        return Step(parts, joined([part.rank.rows for part in parts]), now)

    def patience(self, now: float) -> float | None:
        """A draft at its limits waits for a message, however long."""
        return None

    def settle(self, step: Step, outputs: Sequence[Ranked], now: float) -> None:
        """Turns the ranked children into nodes and sends them, at once or with those to come."""
        if not any(part.session.lacks_tokens for part in step.parts):
            self.pass_seconds += (1 - PASS_MEMORY) * (now - step.started - self.pass_seconds)
        self.counters.passes += 1
        self.counters.draft_rows += step.rows.count
        for part, output in zip(step.parts, outputs, strict=True):
            self._settle(part, output)
            self._grow(part.session, now)

    def fail(self, step: Step, detail: str, now: float) -> None:
        """Closes the sessions whose pass could not be run."""
        for session in (part.session for part in step.parts):
            if (session.link, session.number) in self.sessions:
                self._close(session.link, session.number, CloseReason.EVICTED, detail)
        self._tell_room()

    def report(self) -> Report:
        """Counters so far."""
        self.counters.kv_slots_used = self.pool.used * BLOCK
        self.counters.kv_slots = self.pool.blocks * BLOCK
        return Report(self.counters, len(self.sessions), 0, self.draining)

    def apply(self, link: int, message: FromTarget, now: float) -> None:
        """One message of a target; a violation closes its session."""
        try:
            match message:
                case Open():
                    self._open(link, message, now)
                case Commit():
                    self._commit(self.sessions[link, message.session], message, now)
                case Limits():
                    self._limit(self.sessions[link, message.session], message)
                case Close():
                    self._drop(self.sessions[link, message.session], message.reason)
        except KeyError:
            return  # the session has ended here; the target hears or has heard of it
        except ProtocolViolation as error:
            self._close(link, message.session, CloseReason.INVALID, str(error))
        self._tell_room()

    def _open(self, link: int, message: Open, now: float) -> None:
        key = (link, message.session)
        vocabulary = len(self.links[link])
        if key in self.sessions:
            raise ProtocolViolation("this session is open already")
        if len(message.tokens) == 0 or not in_range(message.tokens, vocabulary):
            raise ProtocolViolation(f"tokens must be 1 or more ids below {vocabulary}")
        check_limits(message.limits)
        try:
            message.sampling.validate(vocabulary)
        except WorkerError as error:
            raise ProtocolViolation(str(error)) from None
        if self.draining:
            self._close(link, message.session, CloseReason.DRAINING, DRAINING)
            return
        if len(message.tokens) >= self.context:
            self._close(link, message.session, CloseReason.TOO_LONG, f"{self.context} tokens fit")
            return
        length = len(message.tokens)
        tokens = np.zeros(self.context + 1, np.int32)
        tokens[:length] = self._readable(message.tokens)
        full = len(self.sessions) >= self.max_sessions
        region = None if full else self.pool.admit(tokens[:length], length)
        self.counters.prompt_tokens += length
        if region is None:
            self._close(link, message.session, CloseReason.OVERLOADED, "no KV is free")
            self.refused.add(link)
            return
        self.counters.cached_prompt_tokens += region.cached
        tree = DraftTree(length, int(tokens[length - 1]), MAX_NODES)
        tree.prefilled(region.cached)
        self.sessions[key] = DraftSession(
            link=link,
            number=message.session,
            region=region,
            tokens=tokens,
            length=length,
            sampling=message.sampling,
            limits=message.limits,
            tree=tree,
            heard=now,
            adjuster=adjuster_for(message, vocabulary),
            trace=SessionTrace.of(message, now),
        )

    def _commit(self, session: DraftSession, message: Commit, now: float) -> None:
        count = len(message.tokens)
        if not in_range(message.tokens, len(self.links[session.link])):
            raise ProtocolViolation("a committed token is outside the vocabulary")
        if session.length + count >= self.context:
            self._close(
                session.link, session.number, CloseReason.TOO_LONG, f"{self.context} tokens fit"
            )
            return
        done = session.tree.commit(message.position, message.tokens)
        session.tokens[session.length : session.length + count] = self._readable(message.tokens)
        session.length += count
        if session.adjuster is not None:
            session.adjuster.add_answer(message.tokens)
        if len(done.sources):
            self.pool.move(session.region, done.sources, done.destinations)
        self._publish(session)
        session.step_seconds += (1 - PASS_MEMORY) * (now - session.heard - session.step_seconds)
        session.heard = now
        session.growths *= done.fall_in
        self.counters.tokens += count
        self._grow(session, now)

    def _limit(self, session: DraftSession, message: Limits) -> None:
        check_limits(message)
        session.limits = message

    def _parts(self, hungry: Sequence[DraftSession]) -> Iterator[Part]:
        """What the next pass runs of each session, in this order, while there is room for rows."""
        chunk, leaves = PROMPT_CHUNK, LEAF_ROWS
        for session in hungry:
            if not self._has_room(session):
                continue
            if session.lacks_tokens:
                part = self._catch_up(session, chunk) if chunk > 0 else None
            else:
                part = self._expand(session, leaves) if leaves > 0 else None
            if part is None:
                continue
            count = part.rank.rows.count
            chunk -= count
            leaves -= count
            if session.lacks_tokens:
                leaves = max(leaves, LEAST_LEAF_ROWS)
            yield part

    def _has_room(self, session: DraftSession) -> bool:
        """Makes room for the next pass of a session; closes it if there is none."""
        if self.pool.extend(session.region, session.room):
            return True
        self._close(session.link, session.number, CloseReason.OVERLOADED, "no KV is free")
        return False

    def _catch_up(self, session: DraftSession, most: int) -> Part:
        """Runs committed tokens that have no KV; the chunk that reaches the root ranks children."""
        start = session.tree.cached
        end = min(start + most, session.length)
        last = end == session.length
        rows = prompt_rows(session.tokens[start:end], start, session.region, wants_output=last)
        leaves = ROOT_LEAF if last else ROOT_LEAF[:0]
        offsets = np.full(len(leaves), session.tree.root_position, np.int32)
        return Part(session, leaves, offsets, self._rank(session, rows, leaves))

    def _expand(self, session: DraftSession, most: int) -> Part:
        """Runs the best leaves of a session."""
        leaves = session.leaves(min(session.limits.width, MAX_WIDTH, most))
        rows = session.tree.rows(leaves)
        step_rows = tree_rows(
            tokens=rows.tokens,
            positions=rows.positions,
            offsets=rows.slots,
            region=session.region,
            prefix=rows.prefix,
            ancestors=rows.ancestors,
            depth=rows.positions - np.int32(session.tree.root_position),
        )
        return Part(session, leaves, rows.slots, self._rank(session, step_rows, leaves))

    def _settle(self, part: Part, output: Ranked) -> None:
        session, tree = part.session, part.session.tree
        if session.trace is not None:
            session.trace.passes += 1
            session.trace.rows += part.rank.rows.count
        if session.lacks_tokens:
            tree.prefilled(min(part.rank.rows.count, len(tree.pending)))
        if len(part.leaves):
            tree.expanded(part.leaves, part.offsets)
            tree.offer(part.leaves, output.tokens, output.logprobs, session.depth_bonus)
        self._publish(session)

    def _publish(self, session: DraftSession) -> None:
        """Lets later sessions that begin with the same tokens find their KV."""
        self.pool.publish(session.region, session.tokens[: session.length], session.tree.cached)

    def _rank(self, session: DraftSession, rows: Rows, leaves: Ints) -> Rank:
        adjuster = session.adjuster
        return Rank(
            rows=rows,
            sampling=session.sampling,
            error_scale=session.limits.error_scale,
            branch=BRANCH,
            allowed=self.links[session.link],
            adjuster=adjuster,
            path_tokens=NO_PATH if adjuster is None else session.tree.path_tokens(leaves),
        )

    def _grow(self, session: DraftSession, now: float) -> None:
        """Makes nodes of the best candidates, as far as limits allow; sends them if it is time."""
        if session.lacks_tokens or session.limits.nodes_ahead == 0:
            return
        most = min(session.limits.nodes_ahead, MAX_NODES)
        before = session.tree.last_id
        while (growth := session.tree.send(most, session.fan(self.pass_seconds))) is not None:
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

    def _readable(self, tokens: Ints) -> Ints:
        """Ids that this model knows; another one's stand for something it does not know."""
        return np.minimum(tokens, np.int32(self.vocabulary - 1))

    def _close(self, link: int, number: int, reason: CloseReason, detail: str) -> None:
        self.held.put(link, Close(number, reason, detail), 0.0)
        self.held.flush()
        session = self.sessions.get((link, number))
        if session is not None:
            self._drop(session, reason)

    def _drain(self) -> None:
        """Closes every session, so that its target opens it elsewhere, and takes no more."""
        self.draining = True
        for link, number in list(self.sessions):
            self._close(link, number, CloseReason.DRAINING, DRAINING)

    def _tell_room(self) -> None:
        """Tells targets that were refused once that there is room again."""
        free = self.max_sessions - len(self.sessions)
        if not self.refused or free == 0 or self.pool.available == 0 or self.draining:
            return
        for link in self.refused:
            self.held.put(link, Capacity(free, self.pool.available * BLOCK), 0.0)
        self.refused.clear()
        self.held.flush()

    def _drop_all(self, link: int) -> None:
        for key in [key for key in self.sessions if key[0] == link]:
            self._drop(self.sessions[key], None)

    def _drop(self, session: DraftSession, reason: CloseReason | None) -> None:
        if session.trace is not None:
            self.outbox.append(session.trace.ended(session, reason))
        self.pool.free(session.region)
        del self.sessions[session.link, session.number]
        self.counters.requests_finished += 1
