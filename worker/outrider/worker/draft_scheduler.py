"""What a draft runs next: missing tokens of a session, or its best leaves; then growth is sent.

One session a pass: those that lack tokens first, then the one whose tree is smallest, for its
target is nearest to running dry. Whether growth pays is the target's to say, by limits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.worker.draft_session import DraftSession, adjuster_for, check_limits, in_range
from outrider.worker.draft_tree import DraftTree
from outrider.worker.errors import ProtocolViolation, WorkerError
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
from outrider.worker.rows import Rows, prompt_rows
from outrider.worker.runner import Rank, Ranked
from outrider.worker.shaping import NO_PATH
from outrider.worker.tree import ROOT, Ints
from outrider.worker.wire import (
    Capacity,
    Close,
    CloseReason,
    Commit,
    FromDraft,
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
BRANCH = 8
"""Children ranked for each expanded leaf."""
MAX_NODES = 512
"""Most live nodes of one session, whatever its limits say."""
MAX_WIDTH = 64
DRAINING = "this draft is shutting down"
ROOT_LEAF = np.array([ROOT], np.int32)


@dataclass(frozen=True, slots=True)
class Step:
    """One pass of one session; `leaves` is empty for a chunk that does not reach the root."""

    session: DraftSession
    leaves: Ints
    slots: Ints
    """[leaves] relative to the session's base."""
    rank: Rank
    started: float


@dataclass(slots=True)
class DraftScheduler:
    """Every session of one draft."""

    pool: KVPool
    context: int
    vocabulary: int
    """Token ids that this model can read; a target may know more."""
    send: Callable[[int, Sequence[FromDraft]], None]
    """Takes a link and messages for it, in order."""
    outbox: list[Any] = field(default_factory=list)
    links: dict[int, NDArray[np.bool_]] = field(default_factory=dict)
    """By link: [vocabulary] ids on which both tokenizers agree."""
    sessions: dict[tuple[int, int], DraftSession] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)
    pass_seconds: float = 0.0
    """Running mean of one pass that expands leaves."""
    unsent: dict[int, list[FromDraft]] = field(default_factory=dict)
    """By link: growth that its target can do without for a moment."""
    held_since: float = 0.0
    """When the oldest of it was made."""
    holds: bool = True
    """Whether growth is held back for others to travel with."""
    draining: bool = False
    """Whether it has been told to take no more sessions."""
    refused: set[int] = field(default_factory=set)
    """Links that were refused a session for want of room, and have not heard of any since."""
    most_used: int = 0
    """Slots in use when a session had to be refused: all there are."""

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
                self.unsent.pop(link, None)
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
            self._flush()
            return None
        session = min(hungry, key=lambda s: (not s.lacks_tokens, len(s.tree)))
        if session.lacks_tokens:
            if session.length - session.tree.cached > SHORT_CATCH_UP:
                self._flush()  # a long pass: what is held of other sessions must not wait for it
            return self._catch_up(session, now)
        return self._expand(session, now)

    def patience(self, now: float) -> float | None:
        """A draft at its limits waits for a message, however long."""
        return None

    def settle(self, step: Step, output: Ranked, now: float) -> None:
        """Turns the ranked children into nodes and sends them at once."""
        session, tree = step.session, step.session.tree
        rows = step.rank.rows.count
        self.counters.passes += 1
        self.counters.draft_rows += rows
        if session.lacks_tokens:
            tree.prefilled(min(rows, len(tree.pending)))
        else:
            self.pass_seconds += (1 - PASS_MEMORY) * (now - step.started - self.pass_seconds)
        if len(step.leaves):
            tree.expanded(step.leaves, step.slots)
            tree.offer(step.leaves, output.tokens, output.logprobs, session.depth_bonus)
        self._grow(session, now)

    def fail(self, step: Step, detail: str, now: float) -> None:
        """Closes the session whose pass could not be run."""
        session = step.session
        if (session.link, session.number) in self.sessions:
            self._close(session.link, session.number, CloseReason.EVICTED, detail)
            self._tell_room()

    def report(self) -> Report:
        """Counters so far."""
        self.counters.kv_slots_used = self.pool.used
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
                    self._drop(self.sessions[link, message.session])
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
        base = self.pool.allocate()
        if base is None:
            self._close(link, message.session, CloseReason.OVERLOADED, "no KV is free")
            self.refused.add(link)
            self.most_used = self.pool.used
            return
        tokens = np.zeros(self.context + 1, np.int32)
        tokens[: len(message.tokens)] = self._readable(message.tokens)
        self.sessions[key] = DraftSession(
            link=link,
            number=message.session,
            base=base,
            tokens=tokens,
            length=len(message.tokens),
            sampling=message.sampling,
            limits=message.limits,
            tree=DraftTree(len(message.tokens), int(tokens[len(message.tokens) - 1]), MAX_NODES),
            heard=now,
            adjuster=adjuster_for(message, vocabulary),
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
            base = np.int32(session.base)
            self.pool.move(done.sources + base, done.destinations + base)
        session.step_seconds += (1 - PASS_MEMORY) * (now - session.heard - session.step_seconds)
        session.heard = now
        session.growths *= done.fall_in
        self.counters.tokens += count
        self._grow(session, now)

    def _limit(self, session: DraftSession, message: Limits) -> None:
        check_limits(message)
        session.limits = message

    def _catch_up(self, session: DraftSession, now: float) -> Step:
        """Runs committed tokens that have no KV; the chunk that reaches the root ranks children."""
        start = session.tree.cached
        end = min(start + PROMPT_CHUNK, session.length)
        last = end == session.length
        rows = prompt_rows(session.tokens[start:end], start, session.base, wants_output=last)
        root = session.tree.root_position
        leaves = ROOT_LEAF if last else ROOT_LEAF[:0]
        slots = np.full(len(leaves), root, np.int32)
        return Step(session, leaves, slots, self._rank(session, rows, leaves), now)

    def _expand(self, session: DraftSession, now: float) -> Step:
        leaves = session.leaves(min(session.limits.width, MAX_WIDTH))
        rows = session.tree.rows(leaves)
        base = np.int32(session.base)
        n = len(leaves)
        step_rows = Rows(
            tokens=rows.tokens,
            positions=rows.positions,
            slots=rows.slots + base,
            base=np.full(n, base, np.int32),
            prefix=rows.prefix,
            ancestors=rows.ancestors + base,
            depth=rows.positions - np.int32(session.tree.root_position),
            outputs=np.arange(n, dtype=np.int32),
        )
        return Step(session, leaves, rows.slots, self._rank(session, step_rows, leaves), now)

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
            self._put(session.link, grow, now)
            if len(session.leaves(1)) > 0:
                break  # the next pass has work; what is left may be outdone by its children
        session.growths += session.tree.last_id > before
        late = now + self.pass_seconds - self.held_since > HELD_SECONDS  # after one more pass
        if late or session.growths == PROMPT_GROWTHS or not self.holds:
            self._flush()

    def _put(self, link: int, message: FromDraft, now: float) -> None:
        if not self.unsent:
            self.held_since = now
        self.unsent.setdefault(link, []).append(message)

    def _flush(self) -> None:
        """Sends all that was held back, one message a link."""
        for link, messages in self.unsent.items():
            self.send(link, messages)
        self.unsent.clear()

    def _readable(self, tokens: Ints) -> Ints:
        """Ids that this model knows; another one's stand for something it does not know."""
        return np.minimum(tokens, np.int32(self.vocabulary - 1))

    def _close(self, link: int, number: int, reason: CloseReason, detail: str) -> None:
        self._put(link, Close(number, reason, detail), 0.0)
        self._flush()
        session = self.sessions.get((link, number))
        if session is not None:
            self._drop(session)

    def _drain(self) -> None:
        """Closes every session, so that its target opens it elsewhere, and takes no more."""
        self.draining = True
        for link, number in list(self.sessions):
            self._close(link, number, CloseReason.DRAINING, DRAINING)

    def _tell_room(self) -> None:
        """Tells targets that were refused once that there is room again."""
        free = (self.most_used - self.pool.used) // self.pool.region
        if not self.refused or free == 0 or self.draining:
            return
        for link in self.refused:
            self._put(link, Capacity(free, free * self.context), 0.0)
        self.refused.clear()
        self._flush()

    def _drop_all(self, link: int) -> None:
        for key in [key for key in self.sessions if key[0] == link]:
            self._drop(self.sessions[key])

    def _drop(self, session: DraftSession) -> None:
        self.pool.free(session.base)
        del self.sessions[session.link, session.number]
        self.counters.requests_finished += 1
