"""Service level objectives: which requests met them, which gives goodput.

Requests that failed or were rejected met none. This share is the "SLO attainment" of DistServe
(arXiv 2401.09670).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from outrider.cli.failures import BadInput
from outrider.cli.load.outcome import Outcome, Status

FIGURES: dict[str, Callable[[Outcome], float | None]] = {
    "ttft": lambda one: one.ttft,
    "itl": lambda one: one.slowest_tokens,
    "tpot": lambda one: one.tpot,
    "latency": lambda one: one.latency,
}
ALLOWED = (
    "comma-separated ttft, itl, tpot or latency, each with seconds above 0 (ttft=0.5,itl=0.05)"
)


@dataclass(frozen=True, slots=True)
class Objective:
    """A figure that no request should exceed."""

    figure: str
    seconds: float

    def met(self, outcome: Outcome) -> bool:
        """True if the request kept to it; a figure that it does not have cannot be exceeded."""
        value = FIGURES[self.figure](outcome)
        return value is None or value <= self.seconds


def objectives(words: str) -> list[Objective]:
    """Of `ttft=0.5,itl=0.05`; raises `BadInput`."""
    return [_objective(words, part) for part in words.split(",")]


def _objective(words: str, part: str) -> Objective:
    name, _, value = part.strip().partition("=")
    try:
        seconds = float(value)
        if name in FIGURES and 0 < seconds < float("inf"):
            return Objective(name, seconds)
    except ValueError:
        pass
    raise BadInput(f"--slo {words}: {part.strip()!r} is not allowed; allowed: {ALLOWED}")


def goodput(outcomes: Iterable[Outcome], wanted: Iterable[Objective]) -> float | None:
    """Share of requests that completed and met every objective.

    Cancelled and interrupted requests are left out; None if there are no others.
    """
    given_up = (Status.CANCELLED, Status.INTERRUPTED)
    counted = [one for one in outcomes if one.status not in given_up]
    wanted = list(wanted)
    good = [
        one
        for one in counted
        if one.status is Status.COMPLETED and all(objective.met(one) for objective in wanted)
    ]
    return len(good) / len(counted) if counted else None
