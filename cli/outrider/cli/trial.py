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
from typing import Any

from outrider.cli import processors
from outrider.cli.local import LocalWorkers
from outrider.cli.process import WORKER, Command
from outrider.cli.progress import Reporter
from outrider.client import AsyncClient, Message, Prompt, Sampling
from outrider.operator.plan import PlanOptions, plan
from outrider.operator.spec import Placement, SpeculationMode, SpeculativeService

PROMPTS = (
    "Explain to a child why the sky is blue.",
    "Write a Python function that reverses a string, and say how it works.",
    "Tell a short story about a lighthouse keeper.",
    "List five tips for a good night's sleep.",
)
TOKENS = 64
ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Arrangement:
    """One way to run a service."""

    placement: Placement | None
    """None: without the draft."""
    threads: int
    """Of the target."""

    @property
    def name(self) -> str:
        """As the recommendation shows it."""
        return f"{self.placement or 'plain'}, {self.threads} threads"


@dataclass(frozen=True, slots=True)
class Timed:
    """Result of one arrangement."""

    tokens_per_second: float
    """Median over answers, from the first token to the last."""
    tokens_per_pass: float


def arrangements(service: SpeculativeService) -> list[Arrangement]:
    """Those that may be best here: plain decoding, serial, and beside each other."""
    count = processors.count()
    found = [Arrangement(None, threads) for threads in sorted({1, count})]
    if service.spec.draft is not None:
        found.append(Arrangement(Placement.COLOCATED, count))
        found.append(Arrangement(Placement.SEPARATE, max(1, count - 1)))
    return found


def arranged(service: SpeculativeService, arrangement: Arrangement) -> SpeculativeService:
    """The service with one target, and another placement of its draft, or without one."""
    spec, placement = service.spec, arrangement.placement
    mode = _mode(spec.speculation.mode, placement)
    speculation = spec.speculation.model_copy(update={"mode": mode})
    draft = spec.draft and spec.draft.model_copy(update={"placement": placement})
    target = spec.target.model_copy(update={"replicas": 1})
    changed = spec.model_copy(update={"target": target, "speculation": speculation, "draft": draft})
    return service.model_copy(update={"spec": changed})


def _mode(mode: SpeculationMode, placement: Placement | None) -> SpeculationMode:
    if placement is None:
        return SpeculationMode.DISABLED
    return SpeculationMode.ADAPTIVE if mode is SpeculationMode.DISABLED else mode


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
    planned = processors.share(plan(arranged(service, arrangement), told), processors.usable())
    hand = LocalWorkers(planned, progress, worker_command=command, folder=folder)
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


async def timed(client: AsyncClient) -> Timed:
    """Answer a few prompts and time them; the first round warms up."""
    chat = (await client.models())[0].has_chat_template
    rates, tokens, passes = [], 0, 0
    for turn in range(1 + ROUNDS):
        for text in PROMPTS:
            prompt: Prompt = [Message("user", text)] if chat else text
            result = await client.complete(prompt, max_tokens=TOKENS, sampling=Sampling())
            if turn > 0 and result.tokens_per_second is not None:
                rates.append(result.tokens_per_second)
                tokens += result.usage.completion_tokens - 1
                passes += result.usage.passes
    return Timed(statistics.median(rates or [0.0]), tokens / max(1, passes))


async def trials(
    service: SpeculativeService,
    options: PlanOptions,
    progress: Reporter,
    *,
    command: Command = WORKER,
    folder: Path | None = None,
) -> dict[str, Any]:
    """Return the tokens per second of every arrangement and the fastest one; raises `Failure`."""
    measured: dict[str, Timed] = {}
    found = arrangements(service)
    for done, arrangement in enumerate(found):
        progress.stage("trial", arrangement.name, done, len(found))
        async with running(
            service, arrangement, options, progress, command=command, folder=folder
        ) as client:
            measured[arrangement.name] = await timed(client)
    progress.finish("trial")
    best = max(found, key=lambda a: measured[a.name].tokens_per_second)
    plain = max(measured[a.name].tokens_per_second for a in found if a.placement is None)
    return {
        "arrangement": best.name,
        "placement": str(best.placement) if best.placement else None,
        "threads": best.threads,
        "over_plain": round(measured[best.name].tokens_per_second / plain, 2) if plain else None,
        "measured": {name: dataclasses.asdict(one) for name, one in measured.items()},
    }
