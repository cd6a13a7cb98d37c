"""Targets of `bench.swiftspec`: the product's scheduler, and one that waits for each subtree.

Each is a `Scheduler` around the product's own, whose commits are counted. Those of all sides run
over one model, one at a time. For comparison alone: no service can have these.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.swiftspec.answer import LOCK_STEP, MIRRORED, PARALLEL
from outrider.contract.state import TimelineSpan
from outrider.worker.messages import EngineReport, FromPeer, LinkDown, LinkUp
from outrider.worker.target.commit import Committer
from outrider.worker.target.pass_record import PassRecord
from outrider.worker.target.scheduler import TargetScheduler
from outrider.worker.target.sequence import Sequence as TargetSequence
from outrider.worker.target.spans import TargetSpans


@dataclass(slots=True)
class CountingCommitter(Committer):
    """Counts the commits of passes that decode, and those whose new root was in the mirror."""

    commits: int = 0
    fall_ins: int = 0

    @classmethod
    def of(cls, scheduler: TargetScheduler) -> "CountingCommitter":
        """Put one in the place of a scheduler's own, and return it."""
        own = scheduler.committer
        made = cls(own.sessions, own.stats, own.outbox, own.kv_cache, own.running)
        scheduler.committer = made
        return made

    def take(self) -> dict[str, int]:
        """Return what was counted since the last call."""
        found = {"commits": self.commits, "fall_ins": self.fall_ins}
        self.commits = self.fall_ins = 0
        return found

    def apply(
        self, record: PassRecord[TargetSequence], plain: float, started: float, now: float
    ) -> int:
        """Apply a pass, and count it if it decodes."""
        if record.sequence.generated > 0 and len(record.tokens):
            self.commits += 1
            self.fall_ins += record.survived
        return Committer.apply(self, record, plain, started, now)


class MirroredTarget:
    """The product's target, made anew with each link: it knows nothing of the one before."""

    def __init__(self, make: Callable[[], TargetScheduler]) -> None:
        self._make = make
        self._begin()

    def _begin(self) -> None:
        self.inner = self._make()
        self.counts = CountingCommitter.of(self.inner)
        self._spans = TargetSpans(self.inner.stats)

    def spans(self, step: Any, output: Any, began: float, ended: float) -> Iterable[TimelineSpan]:
        """Return the spans of a step that is settled."""
        return self._spans(step, output, began, ended)

    @property
    def outbox(self) -> list[Any]:
        """Messages to the server and to drafts."""
        return self.inner.outbox

    @outbox.setter
    def outbox(self, outbox: list[Any]) -> None:
        self.inner.outbox = outbox

    @property
    def host_seconds(self) -> float:
        """Host time within steps of several passes."""
        return self.inner.host_seconds

    def receive(self, message: Any, now: float) -> None:
        """Apply one message of the server process."""
        if isinstance(message, LinkUp):
            self._begin()
        self.inner.receive(message, now)

    def receive_during_pass(self, messages: Sequence[FromPeer], now: float) -> Sequence[FromPeer]:
        """Add growth that has come while a pass ran; return the rest."""
        return self.inner.receive_during_pass(messages, now)

    def next(self, now: float) -> Any:
        """Return the next step."""
        return self.inner.next(now)

    def settle(self, step: Any, output: Any, now: float) -> None:
        """Apply the output of a step."""
        self.inner.settle(step, output, now)

    def fail(self, step: Any, detail: str, now: float) -> None:
        """End the requests of a step that could not be run."""
        self.inner.fail(step, detail, now)

    def max_wait(self, now: float) -> float | None:
        """Return the seconds until a wait ends; None if nothing but a message ends it."""
        return self.inner.max_wait(now)

    def report(self) -> EngineReport:
        """Return the counters so far."""
        return self.inner.report()


class LockStepTarget(MirroredTarget):
    """A target that runs no pass before the subtree has come that knows its last commit.

    A draft that has gone is not waited for.
    """

    def next(self, now: float) -> Any:
        """Return the next step; None while a subtree is awaited."""
        if self._awaits_subtree:
            return None
        return self.inner.next(now, may_wait=False)

    def max_wait(self, now: float) -> float | None:
        """Return None while a subtree is awaited: it is a message."""
        return None if self._awaits_subtree else self.inner.max_wait(now)

    @property
    def _awaits_subtree(self) -> bool:
        return any(map(awaits_subtree, self.inner.admission.running))


def awaits_subtree(sequence: TargetSequence) -> bool:
    """True if a sequence's draft was sent a commit that none of its messages knows yet."""
    session = sequence.session
    if session is None or session.nodes_ahead == 0 or sequence.needs_prefill:
        return False
    return sequence.mirror.acknowledged < session.told


@dataclass(frozen=True, slots=True)
class Use:
    """To an engine of several sides: links and requests that follow are of this one."""

    side: str


class TargetSides:
    """Targets of several sides over one model, each with its own link; one answers at a time."""

    def __init__(self, make: Callable[[], TargetScheduler]) -> None:
        """`make` returns a scheduler over the model; all put messages into one outbox."""
        kinds = {name: LockStepTarget if name == LOCK_STEP else MirroredTarget for name in PARALLEL}
        self._sides: dict[str, MirroredTarget] = {name: kinds[name](make) for name in kinds}
        self._links: dict[int, MirroredTarget] = {}
        """By number: whose it is."""
        self.present = self._sides[MIRRORED]
        self.outbox = self.present.outbox

    @property
    def host_seconds(self) -> float:
        """Host time within steps of several passes."""
        return self.present.host_seconds

    def receive(self, message: Any, now: float) -> None:
        """Apply one message of the server process, with the side that it is for."""
        side = self.present
        if isinstance(message, Use):
            self.present = self._sides[message.side]
            return
        if isinstance(message, LinkUp):
            self._links[message.link] = side
        elif isinstance(message, FromPeer):
            side = self._links[message.link]
        elif isinstance(message, LinkDown):
            side = self._links.pop(message.link)
        side.receive(message, now)

    def receive_during_pass(self, messages: Sequence[FromPeer], now: float) -> Sequence[FromPeer]:
        """Add growth that has come while a pass ran; return the rest."""
        own = [one for one in messages if self._links.get(one.link) is self.present]
        others = [one for one in messages if self._links.get(one.link) is not self.present]
        return (*self.present.receive_during_pass(own, now), *others)

    def spans(self, step: Any, output: Any, began: float, ended: float) -> Iterable[TimelineSpan]:
        """Return the spans of a step that is settled."""
        return self.present.spans(step, output, began, ended)

    def next(self, now: float) -> Any:
        """Return the next step of the present side."""
        return self.present.next(now)

    def settle(self, step: Any, output: Any, now: float) -> None:
        """Apply the output of a step."""
        self.present.settle(step, output, now)

    def fail(self, step: Any, detail: str, now: float) -> None:
        """End the requests of a step that could not be run."""
        self.present.fail(step, detail, now)

    def max_wait(self, now: float) -> float | None:
        """Return the seconds until a wait ends; None if nothing but a message ends it."""
        return self.present.max_wait(now)

    def report(self) -> EngineReport:
        """Return the present side's counters."""
        return self.present.report()
