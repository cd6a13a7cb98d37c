"""Whole services, each started in one arrangement and timed: for `outrider profile` and benchmarks.

The counterpart for CPUs of SwiftSpec's profiling step (arXiv 2506.11309).
"""

import asyncio
import contextlib
import statistics
from collections.abc import AsyncIterator
from dataclasses import dataclass

from outrider.cli.local.service import LocalService
from outrider.cli.service.arrangement import Arrangement, one_target
from outrider.cli.workers.supervisor import StartOptions
from outrider.client import AsyncClient, Message, Prompt, Sampling
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
WARM_UP = "Write one sentence about the sea."
"""Asked first, and not counted; one of the others would be known when it is asked again."""
TOKENS = 64


@dataclass(frozen=True, slots=True)
class Timed:
    """Result of one arrangement."""

    tokens_per_second: float
    """Median over answers, from the first token to the last."""
    tokens_per_pass: float


@contextlib.asynccontextmanager
async def running(
    service: SpeculativeService, arrangement: Arrangement, start: StartOptions
) -> AsyncIterator[AsyncClient]:
    """The service on this machine, arranged so, linked and ready; raises `Failure`."""
    hand = LocalService(one_target(service), arrangement, start).workers()
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
    for number, text in enumerate((WARM_UP, *PROMPTS)):
        prompt: Prompt = [Message("user", text)] if chat else text
        result = await client.complete(prompt, max_tokens=TOKENS, sampling=Sampling())
        if number > 0 and result.tokens_per_second is not None:
            rates.append(result.tokens_per_second)
            tokens += result.usage.completion_tokens - 1
            passes += result.usage.passes
    return Timed(statistics.median(rates or [0.0]), tokens / max(1, passes))
