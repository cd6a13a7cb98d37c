"""Simulated runs of `nightjar`: one pair, one side and one load, until every request is answered.

The planners alone decide: no operator is over the cell.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.nightjar.loads import AT_ONCE, ORACLE_SECONDS, Load, Side, described, static
from bench.nightjar.planners import starting
from outrider.contract.counters import CHOICES
from outrider.simulator.cell import Cell
from outrider.simulator.clients import Answer, Clients
from outrider.simulator.description import Simulation
from outrider.simulator.service import policy_of
from outrider.worker.messages import Finish
from outrider.worker.target.selection import RowSelector

SLICE_SECONDS = 0.5
"""Virtual seconds after which it is asked whether all requests have ended."""
MOST_SECONDS = 3600.0
MOVING = "7b"
"""The pair whose KV without the draft the paper names."""
SATURATED, SATURATED_SECONDS = 400, 20.0
"""Requests that are open at all times, more than its KV has room for, and virtual seconds."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one side came to under one load."""

    tokens_per_second: float
    """Tokens a second from the first request to the end of the last answer."""
    busy_tokens_per_second: float
    """Tokens a second over the seconds in which there was a request."""
    mean_seconds: float
    """Mean seconds of answers, from arrival to the last token."""
    p99_seconds: float
    first_token_seconds: float
    """Mean seconds from arrival to the first token."""
    off_share: float
    """Share of passes of requests without a draft token."""
    choices: dict[str, int]
    """Steps by the planner's choice."""


def until_answered(simulation: Simulation, side: Side, requests: int) -> Outcome:
    """Run the one cell of a simulation until so many requests have come and ended."""
    clients = Clients(simulation, Path())
    cell = cell_of(simulation, side, clients)
    while clients.arrived < requests or clients.unanswered:
        cell.clock.run(cell.clock.now + SLICE_SECONDS)
        if cell.clock.now > MOST_SECONDS:
            raise RuntimeError(f"{clients.unanswered} requests have no answer after an hour")
    return outcome(cell, clients.answers, requests)


def rate_at_once(simulation: Simulation, side: Side) -> float:
    """Return the tokens a second of a simulation that keeps a number of requests."""
    cell = cell_of(simulation, side, Clients(simulation, Path()))
    counters = cell.targets[0].scheduler.stats.counters
    cell.clock.run(simulation.seconds / 4)  # the first answers begin all at once
    before = counters.generation_tokens
    cell.clock.run(simulation.seconds)
    return (counters.generation_tokens - before) / (0.75 * simulation.seconds)


def cell_of(simulation: Simulation, side: Side, clients: Clients) -> Cell:
    """Return the cell of a simulation, with a side's planner, whose clients have begun."""
    start = RowSelector.start if side.make is None else starting(side.make)
    policy = policy_of(simulation)
    cell = Cell(simulation, policy, Path(), clients.receive, start_selector=start)
    clients.begin(cell)
    return cell


def outcome(cell: Cell, answers: Iterable[Answer], requests: int) -> Outcome:
    """Return the figures of a cell that has answered so many requests; it has one target.

    Raises `RuntimeError` unless all were answered in full: other ends have tokens and no latency.
    """
    whole = [one for one in answers if one.message.finish is Finish.LENGTH]
    ended = [(one.arrived, one.ended) for one in whole]
    if len(ended) != requests:
        raise RuntimeError(f"{len(ended)} of {requests} requests were answered in full")
    latencies = sorted(end - begin for begin, end in ended)
    counters = cell.targets[0].scheduler.report().counters
    tokens, passes = counters.generation_tokens, counters.passes
    seconds = max(end for _, end in ended) - min(begin for begin, _ in ended)
    firsts = [one.message.timing.first_token_seconds for one in whole]
    steps = zip(CHOICES, counters.planner_steps, strict=True)
    return Outcome(
        tokens_per_second=tokens / seconds,
        busy_tokens_per_second=tokens / covered(ended),
        mean_seconds=sum(latencies) / len(latencies),
        p99_seconds=latencies[math.ceil(0.99 * len(latencies)) - 1],
        first_token_seconds=sum(firsts) / len(firsts),
        off_share=1 - counters.drafted_passes / passes,
        choices={choice.value: count for choice, count in steps if count},
    )


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of some spans."""
    total, reached = 0.0, -math.inf
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def simulated(pair: str, side: Side, load: Load) -> Outcome:
    """Return what a side comes to under a load."""
    return until_answered(described(pair, side, load.traffic), side, load.requests)


def steady(pair: str, tokens: int, at_once: int) -> float:
    """Return the tokens a second of so many draft tokens with so many requests at once."""
    traffic = {"concurrency": at_once}
    side = static(tokens)
    simulation = described(pair, side, traffic, maxRunning=max(AT_ONCE))
    return rate_at_once(simulation.model_copy(update={"seconds": ORACLE_SECONDS}), side)


def saturated(side: Side, kv_tokens: int | None) -> float:
    """Return the tokens a second of a side where more requests are open than KV has room for."""
    target: dict[str, Any] = {"maxRunning": SATURATED}
    if kv_tokens is not None:
        target["kvTokens"] = kv_tokens
    simulation = described(MOVING, side, {"concurrency": SATURATED}, **target)
    return rate_at_once(simulation.model_copy(update={"seconds": SATURATED_SECONDS}), side)
