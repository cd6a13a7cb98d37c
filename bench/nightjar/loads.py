"""Loads and sides of `nightjar`: the paper's pairs, rates and traces, and the planners beside each
other.

Loads and pairs are those of Nightjar (arXiv 2512.22420); what of a pair is the paper's and what is
assumed is written in its file. Leaves running them to `run`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.nightjar.bandit import Bandit
from bench.nightjar.planners import Entry, MakePlanner, Table
from outrider.simulator.description import Simulation, read_simulation
from outrider.simulator.traffic import STRESS

EXAMPLES = Path(__file__).parents[2] / "examples" / "simulate"
PAIRS = ("7b", "13b", "32b")
STATIC = (1, 2, 3, 5)
"""Draft tokens of the static sides."""
RATES = {2.0: 48, 8.0: 160, 16.0: 240, 35.0: 400}
"""Poisson requests a second, of the paper's 1 to 35, and how many of each."""
AT_ONCE = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
"""Requests at once for which the oracle knows the best static side: up to all that may run."""
ORACLE_SECONDS = 30.0
"""Virtual seconds in which each of them is measured: in 6 all numbers seemed to write the same from
48 requests on (32B) or 96 (7B)."""
NEVER_OFF = {"mode": "Static"}
"""Speculation without the switch that turns drafting off."""
MOVED_KV_TOKENS = 4938 * 16
"""KV of the 7B pair's card without the draft, as the paper has it."""


@dataclass(frozen=True, slots=True)
class Load:
    """Requests that come, until all are answered."""

    name: str
    traffic: Mapping[str, Any]
    requests: int


@dataclass(frozen=True, slots=True)
class Side:
    """One planner beside others."""

    name: str
    speculation: Mapping[str, Any]
    """Fields of `speculation` that it needs."""
    make: MakePlanner | None = None
    """Makes its planner; None: the product's."""


def poisson() -> list[Load]:
    """Return the Poisson loads."""
    return [
        Load(f"{rate:g}/s", {"stages": [{"rate": rate, "requests": count}]}, count)
        for rate, count in RATES.items()
    ]


def traces() -> list[Load]:
    """Return the three stress traces, which the paper's code runs with its 7B pair."""
    return [
        Load(stress.value.lower(), {"stress": stress.value}, sum(count for _, count in stages))
        for stress, stages in STRESS.items()
    ]


def loads_of(pair: str) -> list[Load]:
    """Return the loads of a pair."""
    return poisson() + (traces() if pair == "7b" else [])


def static(tokens: int) -> Side:
    """Return the side that verifies so many draft tokens of each request; 0: none."""
    if tokens == 0:
        return Side("off", {"mode": "Disabled"})
    return _table(f"static {tokens}", [Entry(1, tokens)])


def bandit() -> Side:
    """Return Nightjar's planner, with as many draft tokens as the largest static side."""
    return Side("bandit", NEVER_OFF, partial(Bandit, max(STATIC)))


def goodput() -> Side:
    """Return the product's planner, with its switch."""
    return Side("goodput", {})


def oracle(best: Mapping[int, int]) -> Side:
    """Return the side that knows the best number of draft tokens for each number of requests.

    `best`: by requests at once, from 1 on; each holds up to the next.
    """
    firsts = [at for at in best if at == 1 or best[at] != best[_before(best, at)]]
    return _table("oracle", [Entry(first, best[first]) for first in firsts])


def _table(name: str, entries: Sequence[Entry]) -> Side:
    return Side(name, NEVER_OFF, partial(Table, tuple(entries)))


def _before(best: Mapping[int, int], at: int) -> int:
    return max(known for known in best if known < at)


def described(pair: str, side: Side, traffic: Mapping[str, Any], **target: Any) -> Simulation:
    """Return a pair's simulation with other traffic, planner and fields of its target."""
    whole = read_simulation(file_of(pair)).model_dump(by_alias=True, mode="json", exclude_none=True)
    lengths = {key: whole["traffic"][key] for key in ("promptTokens", "answerTokens")}
    whole["traffic"] = lengths | dict(traffic)
    whole["speculation"] |= dict(side.speculation)
    whole["target"] |= target
    return Simulation.model_validate(whole)


def file_of(pair: str) -> Path:
    """Return the file that describes a pair."""
    return EXAMPLES / f"nightjar-{pair}.yaml"


def sides(best: Mapping[int, int]) -> Sequence[Side]:
    """Return all sides, plain decoding first."""
    return [*(static(tokens) for tokens in (0, *STATIC)), bandit(), goodput(), oracle(best)]
