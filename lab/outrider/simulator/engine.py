"""Engine of a simulated worker: the product's loop over a real scheduler, in virtual time.

As `worker.engine.loop`: receive, schedule, run, settle; growth that came during a pass counts
before it is settled. Leaves what a message is to the schedulers, and its way to `cell`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from outrider.simulator.clock import Clock
from outrider.worker.engine.loop import Scheduler
from outrider.worker.errors import PlanFailed
from outrider.worker.messages import FromPeer

LEAST_WAIT = 1e-7
"""Seconds; a wait that rounding makes shorter would never end."""


class PassRunner(Protocol):
    """Runs a pass, in no time."""

    def run(self, step: Any) -> Any:
        """Return what the scheduler settles the step with."""


@dataclass(slots=True)
class SimulatedEngine:
    """One worker's loop."""

    clock: Clock
    scheduler: Scheduler[Any, Any]
    runner: PassRunner
    pass_seconds: Callable[[Any], float]
    """Seconds of a step's pass."""
    host_seconds: Callable[[Any], float]
    """Host seconds beside a step's pass."""
    take: Callable[[list[Any]], None] = list.clear
    """Takes what the scheduler has for its server, and empties it."""
    pace: Callable[[float], float] = lambda now: 1.0
    """Factor of a pass's seconds, by when it begins."""
    busy_seconds: float = 0.0
    """Seconds of all passes so far."""
    passes: int = 0
    stopped: bool = False
    _mailbox: list[Any] = field(default_factory=list)
    _stepping: bool = False
    """True from the begin of a pass to the end of the host time behind it."""
    _turn: int = 0
    """Number of the present wait or pass: an older wait that ends means nothing."""

    @property
    def running(self) -> bool:
        """True during a pass and its host time; a stopped engine runs none to its end."""
        return self._stepping and not self.stopped

    @property
    def unread(self) -> int:
        """Messages that have come and wait for the end of a pass."""
        return len(self._mailbox)

    def slow_beside(self, others: Callable[[], Iterable["SimulatedEngine"]], factor: float) -> None:
        """Let passes that begin while one of `others`, as they are then, runs take longer."""
        alone = self.pass_seconds

        def beside(step: Any) -> float:
            slow = any(other.running for other in others())
            return alone(step) * (factor if slow else 1.0)

        self.pass_seconds = beside

    def receive(self, message: Any) -> None:
        """Take a message that arrives now."""
        if self.stopped:
            return
        self._mailbox.append(message)
        if not self._stepping:
            self._step()

    def stop(self) -> None:
        """End: nothing is received or run any more."""
        self.stopped = True
        self._mailbox.clear()

    def _step(self) -> None:
        """Receive what has come, and begin a pass or a wait."""
        now, self._turn = self.clock.now, self._turn + 1
        self._stepping = False
        messages, self._mailbox = self._mailbox, []
        for message in messages:
            self.scheduler.receive(message, now)
        step = self._schedule(now)
        self.take(self.scheduler.outbox)
        if step is None:
            seconds = self.scheduler.max_wait(now)
            if seconds is not None:
                self.clock.after(max(seconds, LEAST_WAIT), self._wake, self._turn)
            return
        self._stepping = True
        output = self.runner.run(step)
        seconds = self.pass_seconds(step) * self.pace(now)
        self.busy_seconds += seconds
        self.passes += 1
        self.clock.after(seconds, self._settle, step, output)

    def _schedule(self, now: float) -> Any:
        while True:
            try:
                return self.scheduler.next(now)
            except PlanFailed:
                continue

    def _settle(self, step: Any, output: Any) -> None:
        """End a pass; the next one begins after the host time."""
        if self.stopped:
            return
        now = self.clock.now
        peers = [message for message in self._mailbox if isinstance(message, FromPeer)]
        if peers:
            others = [message for message in self._mailbox if not isinstance(message, FromPeer)]
            self._mailbox = [*self.scheduler.receive_during_pass(peers, now), *others]
        self.scheduler.settle(step, output, now)
        self.take(self.scheduler.outbox)
        self.clock.after(self.host_seconds(step), self._go_on)

    def _go_on(self) -> None:
        if not self.stopped:
            self._step()

    def _wake(self, turn: int) -> None:
        if turn == self._turn and not self._stepping and not self.stopped:
            self._step()
