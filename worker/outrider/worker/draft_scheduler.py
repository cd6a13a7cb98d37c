"""What a draft runs next: missing tokens of a session, or its best leaves; then growth is sent.

One session a pass: those that lack tokens first, then the one whose tree is smallest, for its
target is nearest to running dry. Whether growth pays is the target's to say, by limits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.worker.draft_tree import DraftTree
from outrider.worker.errors import ProtocolViolation, WorkerError
from outrider.worker.kv_pool import KVPool
from outrider.worker.messages import (
    Counters,
    FromPeer,
    LinkDown,
    LinkUp,
    Report,
    SetPolicy,
)
from outrider.worker.rows import Rows, prompt_rows
from outrider.worker.runner import Rank, Ranked
from outrider.worker.sampling import Sampling
from outrider.worker.tree import ROOT, Ints
from outrider.worker.wire import (
    Close,
    CloseReason,
    Commit,
    FromDraft,
    FromTarget,
    Grow,
    Limits,
    Open,
)

PROMPT_CHUNK = 64
"""Missing tokens that are run in one pass."""
HELD_SECONDS = 0.002
"""Longest that growth is held back, so that several passes travel as one message: a message costs
each side about 150 µs of processor time whatever its size (Zen 5, grpcio 1.85)."""
PROMPT_GROWTHS = 2
"""Growths of a new tree that are not held beyond: the root's children, and theirs. Without the
second the next fall-in finds an empty tree (the demo's pair, simulated: 1.25 tokens a pass, 1.32
with it); without the first nothing is lost, as long as passes are short."""
FAN = 8
"""Nodes made after one pass."""
LEAST_FAN = 4
LOOKAHEAD_PASSES = 6
"""Passes that the nodes ahead should last for beyond a long link's lag."""
SHORTEST_PASS_SECONDS = 0.0005
LONG_LINK_STEPS = 1.5
"""A link that lags by more of the target's steps than this prefers depth."""
DEPTH_BONUS = 1.0
"""What one level then adds to a score: about what a likely token takes away."""
PASS_MEMORY = 0.9
BRANCH = 8
"""Children ranked for each expanded leaf."""
MAX_NODES = 512
"""Most live nodes of one session, whatever its limits say."""
MAX_WIDTH = 64
ROOT_LEAF = np.array([ROOT], np.int32)


@dataclass(slots=True)
class Drafting:
    """One session: a sequence of some target, as this draft knows it."""

    link: int
    number: int
    base: int
    tokens: NDArray[np.int32]
    """[context + 1] committed tokens, then room."""
    length: int
    sampling: Sampling
    limits: Limits
    tree: DraftTree
    heard: float
    """When it was opened or its last commit came."""
    step_seconds: float = 0.0
    """Running mean of the time between two commits."""
    growths: int = 0
    """Of the present tree, from the last fall-out on."""

    @property
    def has_long_link(self) -> bool:
        """Whether the link lags so much that growth should prefer depth."""
        return self.limits.link_lag_micros * 1e-6 > LONG_LINK_STEPS * self.step_seconds > 0

    @property
    def depth_bonus(self) -> float:
        """By how much growth prefers depth, in log-probability a level."""
        return DEPTH_BONUS if self.has_long_link else 0.0

    @property
    def hungry(self) -> bool:
        """Whether a pass could add something that may be sent."""
        if self.limits.nodes_ahead == 0:
            return False
        has_room = len(self.tree) < self.limits.nodes_ahead
        return self.lacks_tokens or (has_room and len(self.leaves(1)) > 0)

    @property
    def lacks_tokens(self) -> bool:
        """Whether committed tokens, the root's among them, still have to be run."""
        return not self.tree.root_expanded

    def leaves(self, width: int) -> Ints:
        """The best leaves that may be expanded."""
        return self.tree.leaves(min(width, MAX_WIDTH), self.limits.depth)


@dataclass(frozen=True, slots=True)
class Step:
    """One pass of one session; `leaves` is empty for a chunk that does not reach the root."""

    session: Drafting
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
    sessions: dict[tuple[int, int], Drafting] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)
    pass_seconds: float = 0.0
    """Running mean of one pass that expands leaves."""
    unsent: dict[int, list[FromDraft]] = field(default_factory=dict)
    """By link: growth that its target can do without for a moment."""
    held_since: float = 0.0
    """When the oldest of it was made."""
    holds: bool = True
    """Whether growth is held back for others to travel with."""

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
                self._drop_all(link)
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

    def report(self) -> Report:
        """Counters so far."""
        self.counters.kv_slots_used = self.pool.used
        return Report(self.counters, len(self.sessions), 0)

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

    def _open(self, link: int, message: Open, now: float) -> None:
        key = (link, message.session)
        vocabulary = len(self.links[link])
        if key in self.sessions:
            raise ProtocolViolation("this session is open already")
        if len(message.tokens) == 0 or not in_range(message.tokens, vocabulary):
            raise ProtocolViolation(f"tokens must be 1 or more ids below {vocabulary}")
        check_limits(message.limits)
        try:
            message.sampling.validate()
        except WorkerError as error:
            raise ProtocolViolation(str(error)) from None
        if len(message.tokens) >= self.context:
            self._close(link, message.session, CloseReason.TOO_LONG, f"{self.context} tokens fit")
            return
        base = self.pool.allocate()
        if base is None:
            self._close(link, message.session, CloseReason.OVERLOADED, "no KV is free")
            return
        tokens = np.zeros(self.context + 1, np.int32)
        tokens[: len(message.tokens)] = self._readable(message.tokens)
        self.sessions[key] = Drafting(
            link=link,
            number=message.session,
            base=base,
            tokens=tokens,
            length=len(message.tokens),
            sampling=message.sampling,
            limits=message.limits,
            tree=DraftTree(len(message.tokens), int(tokens[len(message.tokens) - 1]), MAX_NODES),
            heard=now,
        )

    def _commit(self, session: Drafting, message: Commit, now: float) -> None:
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
        if len(done.sources):
            base = np.int32(session.base)
            self.pool.move(done.sources + base, done.destinations + base)
        session.step_seconds += (1 - PASS_MEMORY) * (now - session.heard - session.step_seconds)
        session.heard = now
        session.growths *= done.fall_in
        self.counters.tokens += count
        self._grow(session, now)

    def _limit(self, session: Drafting, message: Limits) -> None:
        check_limits(message)
        session.limits = message

    def _catch_up(self, session: Drafting, now: float) -> Step:
        """Runs committed tokens that have no KV; the chunk that reaches the root ranks children."""
        start = session.tree.cached
        end = min(start + PROMPT_CHUNK, session.length)
        last = end == session.length
        rows = prompt_rows(session.tokens[start:end], start, session.base, wants_output=last)
        root = session.tree.root_position
        leaves = ROOT_LEAF if last else ROOT_LEAF[:0]
        slots = np.full(len(leaves), root, np.int32)
        return Step(session, leaves, slots, self._rank(session, rows), now)

    def _expand(self, session: Drafting, now: float) -> Step:
        leaves = session.leaves(session.limits.width)
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
        return Step(session, leaves, rows.slots, self._rank(session, step_rows), now)

    def _rank(self, session: Drafting, rows: Rows) -> Rank:
        return Rank(
            rows, session.sampling, session.limits.error_scale, BRANCH, self.links[session.link]
        )

    def _grow(self, session: Drafting, now: float) -> None:
        """Makes nodes of the best candidates, as far as limits allow; sends them if it is time."""
        if session.lacks_tokens or session.limits.nodes_ahead == 0:
            return
        most = min(session.limits.nodes_ahead, MAX_NODES)
        before = session.tree.last_id
        while (growth := session.tree.send(most, self._fan(session))) is not None:
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

    def _fan(self, session: Drafting) -> int:
        """Nodes for one pass; with a long link fewer, or all would be spent near the root."""
        if not session.has_long_link:
            return FAN
        limits, seconds = session.limits, max(self.pass_seconds, SHORTEST_PASS_SECONDS)
        passes = limits.link_lag_micros * 1e-6 / seconds + LOOKAHEAD_PASSES
        return min(FAN, max(LEAST_FAN, int(limits.nodes_ahead / passes)))

    def _close(self, link: int, number: int, reason: CloseReason, detail: str) -> None:
        self._put(link, Close(number, reason, detail), 0.0)
        self._flush()
        session = self.sessions.get((link, number))
        if session is not None:
            self._drop(session)

    def _drop_all(self, link: int) -> None:
        for key in [key for key in self.sessions if key[0] == link]:
            self._drop(self.sessions[key])

    def _drop(self, session: Drafting) -> None:
        self.pool.free(session.base)
        del self.sessions[session.link, session.number]
        self.counters.requests_finished += 1


def in_range(tokens: Ints, vocabulary: int) -> bool:
    """Whether every token is an id of the target's vocabulary."""
    return bool(np.all((tokens >= 0) & (tokens < vocabulary)))


def check_limits(limits: Limits) -> None:
    """Raises `ProtocolViolation` for limits that no draft could keep."""
    if not (np.isfinite(limits.error_scale) and limits.error_scale > 0):
        raise ProtocolViolation(f"error scale {limits.error_scale} is not a positive number")
    if limits.nodes_ahead > 0 and limits.width == 0:
        raise ProtocolViolation("a width of 0 leaves cannot grow any nodes")
