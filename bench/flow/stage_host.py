"""A simulated stage: the real state machine, whose segments take the setting's time.

It does what `pipeline.stage_loop` does: handle the oldest record, take what has come meanwhile, for
it may kill rows of the output, then send.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bench.flow.clock import Clock
from bench.flow.outcome import Span
from outrider.worker.pipeline.records import Record, Results, Segment, visited
from outrider.worker.pipeline.stage import Stage


class Processors:
    """Processors that stages share: who comes first computes first."""

    def __init__(self, clock: Clock, count: int) -> None:
        self.clock = clock
        self._free = [0.0] * count
        """When each is free."""

    def compute(self, seconds: float, done: Callable[[float, float], None]) -> None:
        """Take the next free processor; `done` hears of begin and end, at the end."""
        at = min(range(len(self._free)), key=self._free.__getitem__)
        begin = max(self.clock.now, self._free[at])
        end = self._free[at] = begin + seconds
        self.clock.at(end, lambda: done(begin, end))


class StageHost:
    """One stage and its time."""

    def __init__(
        self,
        processors: Processors,
        stage: Stage,
        number: int,
        seconds: Callable[[int], float],
        send: Callable[[Any], None],
        tells_times: bool = False,
    ) -> None:
        """`seconds` of a segment of so many rows; `send` takes what goes to the next party;
        `tells_times`: a segment gets a visit, as from `pipeline.stage_loop`."""
        self._processors = processors
        self._stage = stage
        self._number = number
        self._seconds = seconds
        self._send = send
        self._tells_times = tells_times
        self._running = False
        self.spans: list[Span] = []

    def receive(self, record: Record) -> None:
        """Take a record that has arrived."""
        if isinstance(record, Segment):
            record = replace(record, arrived=self._processors.clock.now)
        self._stage.receive(record)
        if not self._running:
            self._run()

    def _run(self) -> None:
        """Handle records until one takes time."""
        while self._stage.incoming:
            oldest = self._stage.incoming[0]
            self._stage.step()
            rows = oldest.count if isinstance(oldest, Segment) else 0
            if rows:
                self._compute(oldest, rows)
                return
            self._send_all()

    def _compute(self, segment: Any, rows: int) -> None:
        self._running = True

        def computed(begin: float, end: float) -> None:
            self.spans.append(Span(self._number, begin, end, rows))
            self._running = False
            if self._tells_times:
                made = self._stage.outgoing.pop()
                assert isinstance(made, Segment | Results)
                self._stage.outgoing.append(visited(segment, made, begin, end))
            self._send_all()
            self._run()

        self._processors.compute(self._seconds(rows), computed)

    def _send_all(self) -> None:
        while self._stage.outgoing:
            self._send(self._stage.outgoing.popleft())
