"""State of `outrider top` at one time: the last samples, the ones before, and a line of rates.

Asks no worker and shows nothing.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from outrider.cli.top.figures import StateChange, TopFigures, between, since_start, together
from outrider.cli.top.poll import Look
from outrider.cli.top.stages import StageFigures, stage_figures
from outrider.client import Counters, State
from outrider.contract.settings import Role

REMEMBERED = 120
"""Intervals that the line of rates shows at most."""


@dataclass(slots=True)
class History:
    """Grows by one look at all workers at a time."""

    looks: tuple[Look, ...] = ()
    """The last ones."""
    rates: "deque[float]" = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """Tokens per second of all targets, oldest first."""
    _changes: dict[str, StateChange | None] = field(default_factory=dict)
    """By address: what was counted between the last two looks."""
    _stages: dict[str, tuple[StageFigures, ...] | None] = field(default_factory=dict)
    """Likewise: of the stages of pipelined targets."""

    def add(self, looks: Iterable[Look]) -> None:
        """Take the next samples."""
        before = {look.address: look for look in self.looks}
        self.looks = tuple(looks)
        self._changes = {
            look.address: between(before.get(look.address), look) for look in self.looks
        }
        self._stages = {
            look.address: stage_figures(before.get(look.address), look) for look in self.looks
        }
        if before:
            now = self.now()
            self.rates.append((now.tokens_per_second or 0.0) if now else 0.0)

    def of(self, role: Role) -> tuple[Look, ...]:
        """Return the workers of one role; one that never answered counts as a target."""
        return tuple(look for look in self.looks if self.role(look) is role)

    def role(self, look: Look) -> Role:
        """Return the role of a worker; without an answer, a draft is what a target links to."""
        if look.state is not None:
            return look.state.role
        states = (other.state for other in self.looks)
        linked = {link.address for state in states if state for link in state.links}
        return Role.DRAFT if look.address in linked else Role.TARGET

    def change(self, look: Look) -> TopFigures | None:
        """Return the change of one worker since the sample before."""
        change = self._changes.get(look.address)
        return change.figures() if change else None

    def stages(self, look: Look) -> tuple[StageFigures, ...] | None:
        """Return figures of the stages of one worker since the sample before; None: it has none."""
        return self._stages.get(look.address)

    def counted(self, look: Look, state: State) -> Counters:
        """Return what one worker counted since the sample before, or since it started."""
        change = self._changes.get(look.address)
        return change.counters if change else state.counters

    def now(self) -> TopFigures | None:
        """Return the change of all targets since the sample before."""
        changes = (self._changes.get(look.address) for look in self.of(Role.TARGET))
        change = together(change for change in changes if change)
        return change.figures() if change else None

    def total(self) -> TopFigures | None:
        """Return the change of all targets since they started."""
        states = (look.state for look in self.of(Role.TARGET))
        change = together(since_start(state) for state in states if state)
        return change.figures() if change else None
