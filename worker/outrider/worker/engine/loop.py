"""The loop that runs both roles: read what came, schedule a step, run it, settle it.

What a row is and what settling means is the scheduler's; tensors are the runner's. Neither a link
nor a client is ever waited for, unless the scheduler has nothing to run.
"""

import logging
import time
from typing import Any, Generic, Protocol, TypeVar

from outrider.worker.engine.socket_channel import ChannelClosed
from outrider.worker.errors import DeviceLost, GroupLost
from outrider.worker.messages import EngineReport

logger = logging.getLogger(__name__)

REPORT_SECONDS = 0.25
UNPLANNED = "the engine failed at this request"

Step = TypeVar("Step")
Output = TypeVar("Output")
StepIn = TypeVar("StepIn", contravariant=True)
OutputIn = TypeVar("OutputIn", contravariant=True)
OutputOut = TypeVar("OutputOut", covariant=True)


class Scheduler(Protocol[Step, OutputIn]):
    """Decides what runs. Pure but for the messages that it puts into `outbox`."""

    outbox: list[Any]

    def receive(self, message: Any, now: float) -> None:
        """Applies one message of the server or of a peer."""

    def next(self, now: float) -> Step | None:
        """The next step; None if there is nothing to run."""

    def fail_next(self, detail: str, now: float) -> bool:
        """Ends the request at which `next` failed; False if nobody can say which one that was."""

    def settle(self, step: Step, output: OutputIn, now: float) -> None:
        """Applies what a step brought."""

    def fail(self, step: Step, detail: str, now: float) -> None:
        """Ends whatever a step ran for that could not be run or settled."""

    def patience(self, now: float) -> float | None:
        """Seconds to wait for a message when there is nothing to run; None: as long as it takes."""

    def report(self) -> EngineReport:
        """Counters so far."""


class Runner(Protocol[StepIn, OutputOut]):
    """Turns a step into numbers."""

    def run(self, step: StepIn) -> OutputOut:
        """One forward pass and what follows it."""


class Transport(Protocol):
    """How the loop hears and speaks."""

    def drain(self) -> list[Any]:
        """Every message that has come; raises `ChannelClosed` when there will be no more."""

    def wait(self, seconds: float | None) -> None:
        """Sleeps until there may be messages, or for `seconds`; None: as long as it takes."""

    def send(self, *messages: Any) -> None:
        """Hands messages over; waits for no peer."""


class Engine(Generic[Step, Output]):
    """One worker's engine."""

    def __init__(
        self,
        scheduler: Scheduler[Step, Output],
        runner: Runner[Step, Output],
        transport: Transport,
    ) -> None:
        self.scheduler = scheduler
        self.runner = runner
        self.transport = transport
        self._reported = 0.0
        self._changed = True

    def run(self) -> None:
        """Runs until the server is gone; raises `GroupLost` when a rank of the model is, and
        `DeviceLost` when its GPU is."""
        try:
            while True:
                self.turn()
        except ChannelClosed:
            logger.info("the server is gone")

    def turn(self) -> None:
        """Reads what came, then runs one step or waits.

        Messages go out when the next step is known, just before it runs: writing them gives other
        threads the interpreter lock, which the engine then needs no more (docs/decisions/0004).
        """
        for message in self.transport.drain():
            self.scheduler.receive(message, time.monotonic())
            self._changed = True
        step = self.next()
        if step is None:
            self.wait(self.scheduler.patience(time.monotonic()))
            return
        self.flush()
        try:
            output = self.runner.run(step)
            self.scheduler.settle(step, output, time.monotonic())
        except (DeviceLost, GroupLost):
            raise
        except Exception:
            logger.exception("a step failed; what it ran for ends, the rest goes on")
            self.scheduler.fail(step, "the engine failed in one of its steps", time.monotonic())
        self._changed = True

    def next(self) -> Step | None:
        """The next step; one request that cannot be planned for ends, and the rest goes on.

        Raises what the scheduler raised where that was no one request's fault: what it holds can
        then not be trusted, so the engine ends, and whoever supervises the worker starts afresh.
        """
        while True:
            try:
                return self.scheduler.next(time.monotonic())
            except Exception:
                if not self.scheduler.fail_next(UNPLANNED, time.monotonic()):
                    raise
                logger.exception("a request could not be planned for; it ends, the rest goes on")
                self._changed = True

    def wait(self, seconds: float | None) -> None:
        """Sleeps until a message comes, or for `seconds`; an idle engine's report is up to date."""
        self.flush(last=seconds is None)
        self.transport.wait(seconds)

    def flush(self, last: bool = False) -> None:
        """Sends what the scheduler has to say, and a report when one is due."""
        outbox = self.scheduler.outbox
        now = time.monotonic()
        if self._changed and (last or now - self._reported > REPORT_SECONDS):
            outbox.append(self.scheduler.report())
            self._reported, self._changed = now, False
        if outbox:
            self.transport.send(*outbox)
            outbox.clear()
