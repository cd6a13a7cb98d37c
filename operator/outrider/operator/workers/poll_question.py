"""A question to all workers of a service at once, and what came back."""

from collections.abc import Mapping
from dataclasses import dataclass

from outrider.client.state import State
from outrider.operator.pods import Pod


@dataclass(frozen=True, slots=True)
class PodReport:
    """Answer of one worker, and its time."""

    at: float
    """Seconds of the clock that the caller reads with `time.time`."""
    state: State | None
    problem: str = ""
    """Why there is no state; empty if there is one."""


@dataclass(frozen=True, slots=True)
class PollQuestion:
    """What is asked in one poll."""

    pods: tuple[Pod, ...]
    """Pods that are asked for their state."""
    is_scrape: bool
    """True if an interval has passed: the answers begin or end a window."""
    at: float
    """When it was asked, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class PollAnswer:
    """What the pods of a poll have answered."""

    question: PollQuestion
    reports: Mapping[str, PodReport]
    """By the pods' uids; a pod that is silent has one that says so."""
