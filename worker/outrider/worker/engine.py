"""The loop that runs both roles: read what came, schedule a step, run it, settle it.

What a row is and what settling means is the scheduler's; tensors are the runner's. Neither a link
nor a client is ever waited for, unless the scheduler has nothing to run.
"""

import logging
import time
from typing import Any, Generic, Protocol, TypeVar

from outrider.worker.channel import Channel, ChannelClosed
from outrider.worker.messages import Report

logger = logging.getLogger(__name__)

REPORT_SECONDS = 0.25

Step = TypeVar("Step")
Output = TypeVar("Output")
StepIn = TypeVar("StepIn", contravariant=True)
OutputIn = TypeVar("OutputIn", contravariant=True)
OutputOut = TypeVar("OutputOut", covariant=True)


class Scheduler(Protocol[Step, OutputIn]):
    """Decides what runs. Pure but for the messages that it puts into `outbox`."""

    outbox: list[Any]

    def receive(self, message: Any, now: float) -> None:
        """Applies one message of the server process."""

    def next(self, now: float) -> Step | None:
        """The next step; None if there is nothing to run."""

    def settle(self, step: Step, output: OutputIn, now: float) -> None:
        """Applies what a step brought."""

    def fail(self, step: Step, detail: str, now: float) -> None:
        """Ends whatever a step ran for that could not be run or settled."""

    def patience(self, now: float) -> float | None:
        """Seconds to wait for a message when there is nothing to run; None: as long as it takes."""

    def report(self) -> Report:
        """Counters so far."""


class Runner(Protocol[StepIn, OutputOut]):
    """Turns a step into numbers."""

    def run(self, step: StepIn) -> OutputOut:
        """One forward pass and what follows it."""


class Engine(Generic[Step, Output]):
    """One worker's engine."""

    def __init__(
        self,
        scheduler: Scheduler[Step, Output],
        runner: Runner[Step, Output],
        channel: Channel,
    ) -> None:
        self.scheduler = scheduler
        self.runner = runner
        self.channel = channel
        self._reported = 0.0
        self._changed = False

    def run(self) -> None:
        """Runs until the server process is gone."""
        try:
            while True:
                self.turn()
        except ChannelClosed:
            logger.info("the server process is gone")

    def turn(self) -> None:
        """Reads what came, then runs one step or waits."""
        for message in self.channel.drain():
            self.scheduler.receive(message, time.monotonic())
            self._changed = True
        step = self.scheduler.next(time.monotonic())
        if step is None:
            self.wait(self.scheduler.patience(time.monotonic()))
            return
        try:
            output = self.runner.run(step)
            self.scheduler.settle(step, output, time.monotonic())
        except Exception:
            logger.exception("a step failed; what it ran for ends, the rest goes on")
            self.scheduler.fail(step, "the engine failed in one of its steps", time.monotonic())
        self._changed = True
        self.flush()

    def wait(self, seconds: float | None) -> None:
        """Sleeps until a message comes, or for `seconds`; an idle engine's report is up to date."""
        self.flush(last=seconds is None)
        self.channel.wait(seconds)

    def flush(self, last: bool = False) -> None:
        """Sends what the scheduler has to say, and a report when one is due."""
        outbox = self.scheduler.outbox
        now = time.monotonic()
        if self._changed and (last or now - self._reported > REPORT_SECONDS):
            outbox.append(self.scheduler.report())
            self._reported, self._changed = now, False
        if outbox:
            self.channel.send(*outbox)
            outbox.clear()
