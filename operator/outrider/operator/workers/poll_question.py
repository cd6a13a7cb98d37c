"""A question to all workers of a service at once, and what came back."""

from collections.abc import Mapping
from dataclasses import dataclass

from outrider.contract.state import State
from outrider.operator.pods import Pod


@dataclass(frozen=True, slots=True)
class PodReport:
    """Answer of one worker, and its time."""

    at: float
    """Seconds of the clock that the caller reads with `time.time`."""
    state: State | None
    metrics: str | None
    """Text of `/metrics`; None: there is no answer."""
    problem: str = ""
    """Why something is missing; empty if nothing is."""


@dataclass(frozen=True, slots=True)
class PollQuestion:
    """What is asked in one poll."""

    pods: tuple[Pod, ...]
    """Pods that are asked for their state and their `/metrics`."""
    is_scrape: bool
    """True if an interval has passed: the metrics begin or end a window."""
    at: float
    """When it was asked, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class PollAnswer:
    """What the pods of a poll have answered."""

    question: PollQuestion
    reports: Mapping[str, PodReport]
    """By the pods' uids; a pod that is silent has one that says so."""
