"""The engine's loop, the same for target and draft: receive messages, schedule, run, settle.

Leaves the choice of what runs to a `Scheduler`, tensors to a `Runner`, bytes to a `Transport`. The
loop waits only while its scheduler has nothing to run, and never for a client or a link.
"""

import abc
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from outrider.worker.engine.direct_links import DirectLinks
from outrider.worker.engine.pass_timeline import NO_TIMELINE, PassTimeline
from outrider.worker.engine.socket_channel import ChannelClosed
from outrider.worker.errors import DeviceLost, GroupLost, PlanFailed
from outrider.worker.messages import Alive, AskAlive, AskTimeline, EngineReport, Timeline

logger = logging.getLogger(__name__)

REPORT_SECONDS = 0.25
"""Shortest time between two reports of an engine that is busy."""
NOT_RUN = "the engine failed in one of its steps"

Step = TypeVar("Step")
Output = TypeVar("Output")
StepIn = TypeVar("StepIn", contravariant=True)
OutputIn = TypeVar("OutputIn", contravariant=True)
OutputOut = TypeVar("OutputOut", covariant=True)


class WakeUp:
    """A message of a process to itself, which wakes it: look around."""


class LoopScheduler(Protocol):
    """Decides what runs; does no I/O, but puts messages into `outbox`."""

    outbox: list[Any]

    def receive(self, message: Any, now: float) -> None:
        """Apply one message of the server or of a peer."""

    def max_wait(self, now: float) -> float | None:
        """Return the seconds to wait for a message where nothing is to run; None: no limit."""

    def report(self) -> EngineReport:
        """Return the counters so far."""


class Scheduler(LoopScheduler, Protocol[Step, OutputIn]):
    """Decides on steps."""

    @property
    def host_seconds(self) -> float:
        """Host time within steps of several passes, which the engine takes for time of a pass."""

    def receive_during_pass(self, messages: Sequence[Any], now: float) -> Sequence[Any]:
        """Apply messages that have come while a step ran, before it is settled; return the rest.

        They may add to a tree, and change nothing else that the step was made of.
        """

    def next(self, now: float) -> Step | None:
        """Return the next step; None if there is nothing to run.

        Raises `PlanFailed` after it has ended a request whose part of the step cannot be planned.
        """

    def settle(self, step: Step, output: OutputIn, now: float) -> None:
        """Apply the output of a step."""

    def fail(self, step: Step, detail: str, now: float) -> None:
        """End every request or session of a step that could not be run or settled."""


class Runner(Protocol[StepIn, OutputOut]):
    """Runs steps: a forward pass each, then sampling or the choice of children."""

    def run(self, step: StepIn) -> OutputOut:
        """Run one step."""


class Transport(Protocol):
    """Carries messages between the engine, its server and its peers."""

    direct: DirectLinks
    """Links to peers that the engine's own thread reads and writes."""

    @property
    def arrived(self) -> NDArray[np.int64]:
        """[1] not 0 while there may be a message, but for those of direct links; of its thread."""

    def drain(self) -> list[Any]:
        """Take every message that has come; raise `ChannelClosed` when there will be no more."""

    def drain_peers(self) -> list[Any]:
        """Take the messages of peers that have come, as far as that takes no system call."""

    def wait(self, seconds: float | None) -> None:
        """Sleep until there may be messages, or for `seconds`; None: no limit."""

    def send(self, *messages: Any) -> None:
        """Hand messages over, without waiting for a peer; none is for a direct link."""


class EngineLoop(abc.ABC):
    """Steps until the server is gone: takes messages, sends what is in the outbox, and reports."""

    def __init__(
        self,
        scheduler: LoopScheduler,
        transport: Transport,
        timeline: Callable[[], Timeline],
        early: Sequence[Any] = (),
    ) -> None:
        """`timeline` returns what was computed lately; `early`: messages that came before."""
        self.scheduler = scheduler
        self.transport = transport
        self._timeline = timeline
        self._left = early
        """Messages that have come and not been received."""
        self._reported_at = 0.0
        self._changed = True
        """True if counters may differ from the last report."""

    def run(self) -> None:
        """Step until the server is gone.

        Raises `GroupLost` when a rank of the model is gone, and `DeviceLost` when its GPU is.
        """
        try:
            while True:
                self.step()
        except ChannelClosed:
            logger.info("the server has exited; the engine stops")

    @abc.abstractmethod
    def step(self) -> None:
        """Go round once."""

    def receive(self) -> None:
        """Hand every message that has come to the scheduler."""
        left, self._left = self._left, ()
        for message in (*left, *self.transport.drain()):
            if isinstance(message, AskTimeline):
                self.scheduler.outbox.append(self._timeline())
            elif isinstance(message, AskAlive):
                self.scheduler.outbox.append(Alive())
            elif not isinstance(message, WakeUp):
                self.scheduler.receive(message, time.monotonic())
                self._changed = True

    def report(self) -> EngineReport:
        """Return the counters so far."""
        return self.scheduler.report()

    def send(self, idle: bool = False) -> None:
        """Send what is in the outbox, and a report if one is due; an idle engine's always is."""
        outbox = self.scheduler.outbox
        now = time.monotonic()
        if self._changed and (idle or now - self._reported_at > REPORT_SECONDS):
            outbox.append(self.report())
            self._reported_at, self._changed = now, False
        if outbox:
            self.transport.send(*outbox)
            outbox.clear()


class Engine(EngineLoop, Generic[Step, Output]):
    """One worker's engine: its scheduler, runner and transport, and the loop over them."""

    scheduler: Scheduler[Step, Output]

    def __init__(
        self,
        scheduler: Scheduler[Step, Output],
        runner: Runner[Step, Output],
        transport: Transport,
        timeline: PassTimeline[Step, Output] = NO_TIMELINE,
    ) -> None:
        super().__init__(scheduler, transport, timeline.asked)
        self.runner = runner
        self.timeline = timeline
        self._host_seconds = 0.0
        self._host_since = time.monotonic()
        """When the last pass or wait ended; what follows is host time up to the next."""

    def step(self) -> None:
        """Receive messages, then schedule, run and settle one step; wait if there is none.

        Growth that has come while the step ran is received before it is settled: a root that lies
        in the mailbox is no fall-out.
        Messages to the server and by gRPC go out once the next step is known, just before it runs:
        handing them over gives other threads the interpreter lock, which a running pass does not
        need (docs/decisions/0004). Those of direct links need no other thread (0013): they are
        written as the scheduler makes them.
        """
        self.receive()
        step = self.schedule()
        if step is None:
            self.wait()
            return
        self.send()
        self._count_host()
        began = self._host_since
        try:
            output = self.runner.run(step)
            self._host_since = now = time.monotonic()
            if early := self.transport.drain_peers():
                self._left = self.scheduler.receive_during_pass(early, now)
            self.scheduler.settle(step, output, now)
        except (DeviceLost, GroupLost):
            raise
        except Exception:
            logger.exception("a step failed; its requests end, all others go on")
            self.scheduler.fail(step, NOT_RUN, time.monotonic())
        else:
            self._note(step, output, began, now)
        self._changed = True

    def schedule(self) -> Step | None:
        """Return the next step; try again after each request that cannot be planned, and so ends.

        Any other error is the fault of no single request: the scheduler's state can then not be
        trusted, so the engine ends, and the supervisor of the worker starts a fresh one.
        """
        while True:
            try:
                return self.scheduler.next(time.monotonic())
            except PlanFailed:
                logger.exception("a request cannot be planned; it has ended, all others go on")
                self._changed = True

    def _note(self, step: Step, output: Output, began: float, ended: float) -> None:
        """Add a step that is settled to the timeline; an error there ends no request."""
        try:
            self.timeline.add(step, output, began, ended)
        except Exception:
            logger.exception("the timeline lacks a step")

    def wait(self) -> None:
        """Sleep until a message comes, or for as long as the scheduler says."""
        seconds = self.scheduler.max_wait(time.monotonic())
        self.send(idle=seconds is None)
        self._count_host()
        self.transport.wait(seconds)
        self._host_since = time.monotonic()

    def report(self) -> EngineReport:
        """Return the counters so far, with the host's time."""
        self._count_host()
        report = self.scheduler.report()
        report.counters.host_seconds = self._host_seconds + self.scheduler.host_seconds
        return report

    def _count_host(self) -> None:
        """Count host time up to now, as a pass or a wait begins."""
        now = time.monotonic()
        self._host_seconds += now - self._host_since
        self._host_since = now
