"""Clients of a cell: they send its part of the traffic, and note what becomes of it."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from outrider.simulator.cell import Cell
from outrider.simulator.description import Simulation
from outrider.simulator.traces import Arrival
from outrider.simulator.traffic import arrivals, lengths, prompt_of, shared_out
from outrider.simulator.workers import TargetWorker
from outrider.worker.messages import Finished, Submit
from outrider.worker.sampling.params import SamplingParams

GREEDY = SamplingParams()
NO_STREAM = math.inf
"""Seconds between two messages of an answer's tokens: all come with its end."""
BACK_OFF = 0.1
"""Seconds from a refusal to the client's next request, where the number of requests is kept."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One request that ended."""

    arrived: float
    """When its client sent it."""
    ended: float
    """When its client had all of it."""
    message: Finished

    @property
    def seconds(self) -> float:
        """From its client and back."""
        return self.ended - self.arrived


@dataclass(slots=True)
class Clients:
    """Requests of one cell."""

    simulation: Simulation
    folder: Path
    number: int = 0
    """Number of the cell."""
    arrived: int = 0
    refused: int = 0
    """Requests refused because too many were open."""
    too_long: int = 0
    """Refused because prompt and answer together are longer than the context."""
    answers: list[Answer] = field(default_factory=list)
    _cell: Cell | None = None
    _open: dict[int, tuple[float, TargetWorker]] = field(default_factory=dict)
    """Requests that have not ended, by number: when they came, and to which target."""
    _open_at: Counter[int] = field(default_factory=Counter)
    """How many of them at each target, by its number."""
    _endless: Iterator[Arrival] | None = None
    """What comes when a request ends, where their number is kept."""

    @property
    def unanswered(self) -> int:
        """Requests that have come and have not ended."""
        return len(self._open)

    def begin(self, cell: Cell) -> None:
        """Send the first requests; raises `SpecError` for a trace that cannot be read."""
        self._cell = cell
        traffic, seed = self.simulation.traffic, self.simulation.seed
        fleet = self.simulation.target.replicas
        if traffic.concurrency is not None:
            self._endless = _one_after_another(self.simulation, self.number)
            for place in range(traffic.concurrency):
                at = place % fleet - cell.targets[0].number
                if 0 <= at < len(cell.targets):
                    self._submit(cell.targets[at], next(self._endless))
            return
        mine = range(cell.targets[0].number, cell.targets[-1].number + 1)
        every = arrivals(traffic, seed, self.folder)
        self._wait_for(shared_out(every, traffic.routing, fleet, mine, seed))

    def receive(self, message: Any) -> None:
        """Note the end of a request; another one comes where their number is kept."""
        if not isinstance(message, Finished):
            return
        at, target = self._open[message.request]
        self._open_at[target.number] -= 1
        self._through_server(self._take, message, at, target)

    def _take(self, message: Finished, at: float, target: TargetWorker) -> None:
        """Note an answer that has come back to its client."""
        assert self._cell is not None
        del self._open[message.request]
        self.answers.append(Answer(at, self._cell.clock.now, message))
        self._send_another(target, 0.0)

    @property
    def _way(self) -> float:
        """Seconds of the way through a target's server, there or back."""
        return self.simulation.target.server_microseconds / 2e6

    def _through_server(self, action: Callable[..., None], *arguments: Any) -> None:
        """Do something at the other end of the server."""
        assert self._cell is not None
        if self._way:
            self._cell.clock.after(self._way, action, *arguments)
        else:
            action(*arguments)

    def _send_another(self, target: TargetWorker, seconds: float) -> None:
        """Send the client's next request after so many seconds, where their number is kept."""
        if self._endless is not None:
            assert self._cell is not None
            self._cell.clock.after(seconds, self._submit, target, next(self._endless))

    def _wait_for(self, mine: Iterator[tuple[int, Arrival]]) -> None:
        found = next(mine, None)
        if found is not None and self._cell is not None:
            self._cell.clock.at(found[1].at, self._arrive, *found, mine)

    def _arrive(self, number: int, arrival: Arrival, mine: Iterator[tuple[int, Arrival]]) -> None:
        assert self._cell is not None
        self._submit(self._cell.targets[number - self._cell.targets[0].number], arrival)
        self._wait_for(mine)

    def _submit(self, target: TargetWorker, arrival: Arrival) -> None:
        """Send a request, unless the target's server refuses it."""
        assert self._cell is not None
        settings, now = self.simulation.target, self._cell.clock.now
        self.arrived += 1
        if arrival.prompt + arrival.answer > settings.max_context:
            self.too_long += 1
            self._send_another(target, BACK_OFF)
            return
        if self._open_at[target.number] >= settings.max_waiting + settings.max_running:
            self.refused += 1
            self._send_another(target, BACK_OFF)
            return
        request = self.arrived
        self._open_at[target.number] += 1
        self._open[request] = now, target
        seed = self.simulation.seed
        prompt = prompt_of(arrival, self.number, request, self.simulation.pair.vocabulary, seed)
        begins = now + self._way
        start_by = begins + settings.max_queue_seconds
        submit = Submit(
            request, prompt, GREEDY, arrival.answer, (), True, begins, start_by=start_by,
            stream_seconds=NO_STREAM,
        )  # fmt: skip
        self._through_server(target.engine.receive, submit)


def _one_after_another(simulation: Simulation, cell: int) -> Iterator[Arrival]:
    """Yield requests that come when others end."""
    traffic, seed = simulation.traffic, simulation.seed
    prompts = lengths(traffic.prompt_tokens, np.random.default_rng([seed, 2, cell]))
    answers = lengths(traffic.answer_tokens, np.random.default_rng([seed, 3, cell]))
    return (Arrival(0.0, *pair) for pair in zip(prompts, answers, strict=True))
