"""Series of a run: load, speed and decisions at even moments of virtual time."""

from dataclasses import dataclass, field

from outrider.simulator.cell import Cell
from outrider.simulator.clients import Clients
from outrider.simulator.control_loop import SimulatedControlLoop

POINTS = 120
"""Points of a series."""


@dataclass(frozen=True, slots=True)
class Point:
    """A moment of one cell; sums are over its workers, since the start."""

    second: float
    arrived: int
    answered: int
    tokens: int
    """Tokens of answers, by decoding and prefill."""
    running: int
    waiting: int
    drafts: int
    """Drafts that have been asked for and have not ended."""
    speculating: int
    """1 while the policy allows drafting."""
    max_rows: int
    gain_plain: float
    """Seconds of plain decoding that all passes were worth."""
    gain_spent: float
    """Seconds that they took."""


@dataclass(slots=True)
class Recorder:
    """Points of a cell while it runs."""

    cell: Cell
    clients: Clients
    control_loop: SimulatedControlLoop
    seconds: float
    """Seconds of the whole run."""
    points: list[Point] = field(default_factory=list)

    def begin(self) -> None:
        """Record now, and go on until the end."""
        self.points.append(self._point())
        self.cell.clock.after(self.seconds / POINTS, self.begin)

    def _point(self) -> Point:
        targets = [target.scheduler for target in self.cell.targets]
        counters = [target.stats.counters for target in targets]
        memory = self.control_loop.memory
        return Point(
            second=self.cell.clock.now,
            arrived=self.clients.arrived,
            answered=len(self.clients.answers),
            tokens=sum(each.generation_tokens for each in counters),
            running=sum(len(target.admission.running) for target in targets),
            waiting=sum(len(target.admission.waiting) for target in targets),
            drafts=len(self.cell.present_drafts),
            speculating=int(memory.speculate),
            max_rows=memory.max_rows,
            gain_plain=sum(each.plain_seconds for each in counters),
            gain_spent=sum(each.spent_seconds for each in counters),
        )
