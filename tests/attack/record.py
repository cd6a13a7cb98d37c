"""Record of the attack on one room: what was asked, what was done to it, and what was wrong."""

import enum
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from bench.record.report import say
from outrider.cli.load.exchange import Exchange, Status


class Kind(enum.StrEnum):
    """What the attack looks for."""

    TEXT = "texts that differ"
    LOST = "requests lost"
    ODD = "odd requests answered wrongly"
    LEAK = "leaks"
    GONE = "workers that did not come back"
    LOG = "faults in logs"


class Problem(NamedTuple):
    """Something that must not be."""

    kind: Kind
    words: str


class Span(NamedTuple):
    """Some time of a room's clock, in seconds."""

    began: float
    ended: float

    def meets(self, others: Iterable["Span"]) -> bool:
        """Whether it has any time in common with one of the others."""
        return any(self.began <= one.ended and one.began <= self.ended for one in others)


@dataclass(slots=True)
class Record:
    """What has been seen of one room."""

    name: str
    started: float = field(default_factory=time.perf_counter)
    ends: float = 0.0
    """When the attack ends, by the clock."""
    streams: list[Exchange] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    odd: Counter[str] = field(default_factory=Counter)
    """Attacks by requests that nobody usual sends."""
    outages: list[Span] = field(default_factory=list)
    """Times from the kill of a process of the target itself until it served again."""
    suspects: list[tuple[Span, Problem]] = field(default_factory=list)
    """Problems that an outage may explain."""
    problems: list[Problem] = field(default_factory=list)

    def clock(self) -> float:
        """Return the seconds since the room began to start."""
        return time.perf_counter() - self.started

    @property
    def over(self) -> bool:
        """Whether nothing more begins."""
        return self.clock() >= self.ends

    def say(self, words: str) -> None:
        """Tell who waits what happens."""
        say(f"{self.name:>13} {self.clock():5.1f} s: {words}")

    def add(self, kind: Kind, words: str) -> None:
        """Note a problem that nothing explains."""
        self.problems.append(Problem(kind, words))
        self.say(f"{kind}: {words}")

    def cut(self) -> list[Exchange]:
        """Return the streams that failed in an outage of their own target."""
        return [one for one in self._failed() if span(one).meets(self.outages)]

    def lost(self) -> list[Exchange]:
        """Return the streams that failed while their target was there."""
        return [one for one in self._failed() if not span(one).meets(self.outages)]

    def unexplained(self) -> list[Problem]:
        """Return the suspects that no outage explains."""
        return [problem for at, problem in self.suspects if not at.meets(self.outages)]

    def _failed(self) -> list[Exchange]:
        return [one for one in self.streams if one.status is Status.FAILED]


def span(exchange: Exchange) -> Span:
    """Return the time of a stream."""
    return Span(exchange.sent, exchange.ended)
