"""One engine in this process, target and serial draft, for benchmarks that need no service.

Leaves gRPC, HTTP and the second process out: what is measured is scheduling and passes.
"""

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.contract.settings import Role, WorkerSettings
from outrider.operator.plan import PlanOptions, plan
from outrider.operator.spec import Placement, SpeculationMode, SpeculativeService
from outrider.worker.api.text import Message, Text
from outrider.worker.draft.batch import DraftBatch
from outrider.worker.launch.build_serial import build_serial
from outrider.worker.launch.prepare import prepare_models
from outrider.worker.launch.serial import SerialScheduler
from outrider.worker.messages import Finished, Submit, Tokens
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.target.batch import TargetBatch
from outrider.worker.target.pass_run import PassRun


@dataclass(frozen=True, slots=True)
class Asked:
    """One request and how it went."""

    tokens: tuple[int, ...]
    end: Finished


@dataclass(slots=True)
class InTurn:
    """A target with its draft in one process."""

    turns: SerialScheduler
    text: Text
    _numbers: int = 0
    _given: dict[int, list[int]] = field(default_factory=dict)

    @classmethod
    def start(cls, service: SpeculativeService, threads: int, **changes: Any) -> "InTurn":
        """Load the models of `service`; `changes` are of the target's settings."""
        settings = colocated(service, threads, **changes)
        models = prepare_models(settings)
        engine, _ = build_serial(settings, models, Discarding())
        assert isinstance(engine.scheduler, SerialScheduler)
        return cls(engine.scheduler, Text.load(models.own.tokenizer))

    def prompt(self, *messages: Message) -> NDArray[np.int32]:
        """Token ids of a chat."""
        return np.array(self.text.encode_chat(list(messages)), np.int32)

    def run(
        self, prompts: Sequence[NDArray[np.int32]], tokens: int, at_once: int, speculate: bool
    ) -> list[Asked]:
        """Answers to all, of `tokens` tokens each, `at_once` at a time, in the order of `prompts`.

        Greedy, and past end tokens, so that every run computes the same.
        """
        waiting = deque(enumerate(prompts))
        found: dict[int, Asked] = {}
        numbers: dict[int, int] = {}
        while len(found) < len(prompts):
            while waiting and len(numbers) - len(found) < at_once:
                place, prompt = waiting.popleft()
                numbers[self.submit(prompt, tokens, speculate)] = place
            self.step()
            for end in self.ends():
                found[numbers[end.request]] = Asked(self.text_of(end.request), end)
        return [found[place] for place in range(len(prompts))]

    def submit(self, prompt: NDArray[np.int32], tokens: int, speculate: bool) -> int:
        """Hand a request to the engine; return its number."""
        self._numbers += 1
        now = time.monotonic()
        submit = Submit(self._numbers, prompt, SamplingParams(), tokens, (), speculate, now)
        self._given[self._numbers] = []
        self.turns.receive(submit, now)
        return self._numbers

    def step(self) -> TargetBatch | PassRun | DraftBatch | None:
        """Run one step, of target or draft; None if there was none."""
        step = self.turns.next(time.monotonic())
        if step is not None:
            self.turns.settle(step, self.turns.run(step), time.monotonic())
        return step

    def text_of(self, request: int) -> tuple[int, ...]:
        """Take the tokens of a request that has ended."""
        return tuple(self._given.pop(request))

    def ends(self) -> list[Finished]:
        """Those that have ended; takes what the engine would have sent."""
        ends = []
        for message in self.turns.outbox:
            if isinstance(message, Tokens):
                self._given[message.request] += message.ids
            elif isinstance(message, Finished):
                ends.append(message)
        self.turns.outbox.clear()
        return ends


class Discarding:
    """A transport whose messages are discarded."""

    arrived = np.zeros(1, np.int64)

    def drain(self) -> list[Any]:
        return []

    def drain_peers(self) -> list[Any]:
        return []

    def wait(self, seconds: float | None) -> None:
        pass

    def send(self, *messages: Any) -> None:
        pass


def colocated(service: SpeculativeService, threads: int, **changes: Any) -> WorkerSettings:
    """Return settings of a target whose serial draft is always on."""
    assert service.spec.draft is not None
    draft = service.spec.draft.model_copy(update={"placement": Placement.COLOCATED})
    speculation = service.spec.speculation.model_copy(update={"mode": SpeculationMode.STATIC})
    spec = service.spec.model_copy(update={"draft": draft, "speculation": speculation})
    made = plan(service.model_copy(update={"spec": spec}), PlanOptions(threads=threads))
    (target,) = made.of(Role.TARGET)
    return dataclasses.replace(target.settings, **changes)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and what came of it."""
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result
