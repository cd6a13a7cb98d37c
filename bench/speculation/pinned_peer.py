"""A service of a pinned commit, asked by `bench.speculation.pinned`: one JSON object a line.

Runs with that commit's sources alone on PYTHONPATH, and so imports nothing of `bench`. What it uses
of `outrider` is what that commit has.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from outrider.cli.local.trial import running
from outrider.cli.service.arrangement import Arrangement
from outrider.cli.service.file import read_service
from outrider.cli.terminal.progress import reporter
from outrider.cli.workers.supervisor import StartOptions
from outrider.client import AsyncClient, Message, Sampling
from outrider.operator.plan import PlanOptions
from outrider.operator.spec import Placement, SpeculationMode


def main() -> int:
    """Start the service, then answer until the input ends."""
    asyncio.run(serve(parse()))
    return 0


def parse() -> argparse.Namespace:
    """Parse the options, all set by `bench.speculation.pinned`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--placement", type=Placement, help="none: without the draft")
    return parser.parse_args()


async def serve(options: argparse.Namespace) -> None:
    """Answer chats, one object a line."""
    service = read_service(options.file)
    speculation = service.spec.speculation.model_copy(update={"mode": SpeculationMode.STATIC})
    spec = service.spec.model_copy(update={"speculation": speculation})
    kept_on = service.model_copy(update={"spec": spec})
    arrangement = Arrangement(options.placement, options.threads)
    start = StartOptions(PlanOptions(), reporter())
    async with running(kept_on, arrangement, start) as client:
        state = await client.state()
        say(dtype=state.dtype, threads=state.threads, step_seconds=state.step_seconds)
        while line := await asyncio.to_thread(sys.stdin.readline):
            say(**await answer(client, json.loads(line), options.placement is not None))


async def answer(client: AsyncClient, asked: dict[str, Any], speculate: bool) -> dict[str, Any]:
    """Return the fields of `bench.sides.services.Answer`."""
    result = await client.complete(
        [Message("user", asked["text"])],
        max_tokens=asked["max_tokens"],
        sampling=Sampling(temperature=asked["temperature"], seed=asked["seed"]),
        speculate=speculate,
    )
    usage, timing = result.usage, result.timing
    return {
        "token_ids": result.token_ids,
        "tokens": usage.completion_tokens - 1,
        "seconds": timing.decode_seconds,
        "passes": usage.passes,
        "draft_rows": usage.draft_rows,
        "accepted_rows": usage.accepted_rows,
        "wait_seconds": timing.draft_wait_seconds,
        "plain_seconds": timing.plain_seconds,
    }


def say(**fields: Any) -> None:
    """Write one line to the other side."""
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    sys.exit(main())
