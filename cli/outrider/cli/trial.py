"""Trials of a service in several arrangements on this machine, one after the other, each timed.

What passes cost does not tell what processes that share a machine cost each other; this does. The
counterpart for CPUs of SwiftSpec's profiling step (arXiv 2506.11309).
"""

import asyncio
import contextlib
import dataclasses
import statistics
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from outrider.cli import processors
from outrider.cli.local import NO_HTTP, LocalWorkers
from outrider.cli.placement.arrangement import Arrangement as Arrangement  # bench.pinned_peer's
from outrider.cli.placement.arrangement import arrange
from outrider.cli.ports import WantedPorts
from outrider.cli.process import WORKER, Command
from outrider.cli.progress import Reporter
from outrider.client import AsyncClient, Message, Prompt, Sampling
from outrider.contract.counters import Counters
from outrider.operator.plan import PlanOptions, plan
from outrider.operator.spec import SpeculativeService

PROMPTS = (
    "Explain to a child why the sky is blue.",
    "Write a Python function that reverses a string, and say how it works.",
    "Tell a short story about a lighthouse keeper.",
    "List five tips for a good night's sleep.",
    "What is the difference between a virus and a bacterium?",
    "Write a short e-mail that asks for a day off.",
    "How do I make tomato soup?",
    "Who was Marie Curie, and what is she known for?",
)
TOKENS = 64
TRIAL_PROMPTS = 6
"""After the one that warms up. Drafts are right in a third of some answers and in half of others:
with three, one start in three took plain decoding for a pair that gains 1.2 (Zen 5)."""
TRIAL_TOKENS = 48
"""Most of an answer in a trial before a first start: 0.2 s where a token takes 4 ms."""
LEAST_TOKENS = 8
ASKED_FOR = "plain decoding is asked for"
"""Why nothing is drafted in a trial or comparison without the draft."""
TRIAL_SECONDS = 1.0
"""Longest that plain decoding should take for one of its 14 answers."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Result of one arrangement."""

    tokens_per_second: float
    """Median over answers, from the first token to the last."""
    tokens_per_pass: float


@dataclass(frozen=True, slots=True)
class Trial:
    """A short trial of an arrangement with a draft, beside plain decoding in the same processes."""

    over_plain: float
    """Tokens per second with the draft, over those without it with the same threads."""
    counters: Counters


class Workshop(NamedTuple):
    """What a command starts workers with, and where it says so."""

    options: PlanOptions
    progress: Reporter
    command: Command = WORKER
    folder: Path | None = None
    """Of settings and logs; None: `~/.cache/outrider/runs`."""

    def running(
        self, service: SpeculativeService, arrangement: Arrangement
    ) -> contextlib.AbstractAsyncContextManager[AsyncClient]:
        """The service, arranged so, as `running` below starts it."""
        options, progress, command, folder = self
        return running(service, arrangement, options, progress, command=command, folder=folder)


def workers(
    service: SpeculativeService,
    workshop: Workshop,
    ports: WantedPorts = NO_HTTP,
    plain_because: str | None = None,
) -> LocalWorkers:
    """The service's workers as processes here, on processors of their own if there are enough.

    `plain_because`: why nothing is drafted, where nothing is; None: as the service itself says.
    """
    planned = processors.share(plan(service, workshop.options), processors.usable())
    if plain_because is not None:
        control = dataclasses.replace(planned.control, disabled_because=plain_because)
        planned = dataclasses.replace(planned, control=control)
    _, progress, command, folder = workshop
    return LocalWorkers(planned, progress, ports=ports, worker_command=command, folder=folder)


def one_target(service: SpeculativeService) -> SpeculativeService:
    """The service with a single target."""
    target = service.spec.target.model_copy(update={"replicas": 1})
    return service.model_copy(update={"spec": service.spec.model_copy(update={"target": target})})


@contextlib.asynccontextmanager
async def running(
    service: SpeculativeService,
    arrangement: Arrangement,
    options: PlanOptions,
    progress: Reporter,
    *,
    command: Command = WORKER,
    folder: Path | None = None,
) -> AsyncIterator[AsyncClient]:
    """The service on this machine, arranged so, linked and ready; raises `Failure`."""
    told = dataclasses.replace(options, threads=arrangement.threads)
    one = arrange(one_target(service), arrangement)
    hand = workers(one, Workshop(told, progress, command, folder), plain_because=ASKED_FOR)
    async with hand:
        linked = asyncio.Event()

        async def stay() -> None:
            linked.set()
            await asyncio.Event().wait()

        keeper = asyncio.create_task(hand.run(stay))
        try:
            waiting = asyncio.create_task(linked.wait())
            await asyncio.wait({keeper, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if keeper.done():
                keeper.result()
            async with hand.target.client() as client:
                yield client
        finally:
            keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeper


def does_not_run(arrangement: Arrangement, error: Exception) -> str:
    """One line on an arrangement whose start, or whose answers, ended in an error."""
    first_line, *_ = str(error).splitlines() or [type(error).__name__]
    return f"{arrangement.name} does not run here: {first_line.removesuffix(' ends:')}"


async def timed(client: AsyncClient) -> Timed:
    """Answer the prompts and time them; one more before them warms up."""
    chat = (await client.models())[0].has_chat_template
    rates, tokens, passes = [], 0, 0
    for number, text in enumerate((PROMPTS[-1], *PROMPTS)):
        prompt: Prompt = [Message("user", text)] if chat else text
        result = await client.complete(prompt, max_tokens=TOKENS, sampling=Sampling())
        if number > 0 and result.tokens_per_second is not None:
            rates.append(result.tokens_per_second)
            tokens += result.usage.completion_tokens - 1
            passes += result.usage.passes
    return Timed(statistics.median(rates or [0.0]), tokens / max(1, passes))


def trial_tokens(row_seconds: float) -> int:
    """Return the tokens of each answer of a trial, where a pass of one row takes so long; 0: it is
    not known."""
    if row_seconds <= 0:
        return TRIAL_TOKENS
    return max(LEAST_TOKENS, min(TRIAL_TOKENS, int(TRIAL_SECONDS / row_seconds)))


async def try_out(client: AsyncClient) -> Trial:
    """Answer a few prompts with the draft and without, in turns, after one that warms up."""
    chat = (await client.models())[0].has_chat_template
    tokens = trial_tokens((await client.state()).step_seconds.get(1, 0.0))
    seconds = {True: 0.0, False: 0.0}
    for number, text in enumerate((PROMPTS[-1], *PROMPTS[:TRIAL_PROMPTS])):
        for speculate in (number % 2 == 0, number % 2 == 1):
            prompt: Prompt = [Message("user", text)] if chat else text
            result = await client.complete(
                prompt, max_tokens=tokens, sampling=Sampling(), speculate=speculate
            )
            if number > 0:
                seconds[speculate] += result.timing.decode_seconds
    counters = (await client.state()).counters
    return Trial(seconds[False] / seconds[True] if seconds[True] else 0.0, counters)
