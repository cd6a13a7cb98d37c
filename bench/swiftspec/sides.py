"""Sides of `bench.swiftspec` as processes: started, linked through a delay, and asked.

The target's settings are those that `outrider run` gives it in that arrangement. Leaves what the
processes run to `target_process` and `draft_process`.
"""

import contextlib
import dataclasses
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.record.report import Prompt
from bench.sides.peer import Peer
from bench.sides.peer import started as peer_started
from bench.swiftspec.answer import ALL_PARALLEL, COLOCATED, PARALLEL, Answer
from outrider.cli.machine.processors import share
from outrider.cli.service.arrangement import Arrangement, arrange
from outrider.contract import processors
from outrider.contract.settings import Dtype, Role, WorkerSettings
from outrider.contract.state import TimelineSpan
from outrider.operator.plan import Plan, PlanOptions, plan
from outrider.operator.spec import Placement, SpeculativeService
from outrider.worker.__main__ import QUIET_LIBRARIES
from tests.process.proxy import Proxy

SEED = 1
"""Seed of answers that are sampled."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of those that are compared: a target, and a draft unless that is inside."""

    name: str
    target: Peer
    draft: Peer | None = None

    def port(self, name: str) -> int:
        """Return one of the draft's ports."""
        assert self.draft is not None
        port: int = self.draft.facts[name]
        return port

    async def ask(
        self, prompt: Prompt, tokens: int, temperature: float = 0.0, speculate: bool = True
    ) -> Answer:
        """Return one answer of at most so many tokens."""
        said = await self.target.ask(
            side=self.name,
            text=prompt.text,
            max_tokens=tokens,
            sampling={"temperature": temperature, "seed": SEED},
            speculate=speculate,
        )
        beside: dict[str, Any] = {}
        if self.draft is not None:
            beside = await self.draft.ask(began=said["began"], ended=said["ended"])
        return answer_of(said, beside)


def answer_of(said: Mapping[str, Any], beside: Mapping[str, Any]) -> Answer:
    """Join what a target and its draft's process have said; `beside` is empty without one."""
    passes = [TimelineSpan(*one) for one in (*said["spans"], *beside.get("spans", ()))]
    return Answer(
        token_ids=tuple(said["token_ids"]),
        tokens=said["tokens"],
        passes=said["passes"],
        began=said["began"],
        ended=said["ended"],
        commits=said["commits"],
        fall_ins=said["fall_ins"],
        target=tuple(one for one in passes if one.lane == "target"),
        draft=tuple(one for one in passes if one.lane == "draft"),
        draft_commits=beside.get("commits", 0),
        draft_fall_ins=beside.get("fall_ins", 0),
        recomputed=beside.get("recomputed", 0),
        messages=said["messages"] + beside.get("messages", 0),
        bytes=said["bytes"] + beside.get("bytes", 0),
    )


async def all_started(
    stack: contextlib.AsyncExitStack,
    service: SpeculativeService,
    folder: Path,
    tell: Callable[[str], None],
) -> dict[str, Side]:
    """Start every side until the stack is closed, one after the other; `tell` which.

    Sides in two processes share the target's, over whose model each has its own scheduler. It takes
    the numeric path that the colocated one has chosen: texts are compared.
    """
    count = processors.count()
    tell(f"starting the target of {COLOCATED}")
    alone = settings_of(service, Placement.COLOCATED, count)[Role.TARGET]
    colocated = Side(COLOCATED, await started(stack, COLOCATED, alone, folder))
    dtype = Dtype(colocated.target.facts["dtype"])
    beside = settings_of(service, Placement.SEPARATE, max(1, count - 1))
    own = beside[Role.TARGET]
    own = dataclasses.replace(own, model=dataclasses.replace(own.model, dtype=dtype))
    tell("starting the target of all others")
    target = await started(stack, ALL_PARALLEL, own, folder)
    sides = {COLOCATED: colocated}
    for name in PARALLEL:
        tell(f"starting the draft of {name}")
        sides[name] = Side(name, target, await started(stack, name, beside[Role.DRAFT], folder))
    return sides


def settings_of(
    service: SpeculativeService, placement: Placement, threads: int
) -> dict[Role, WorkerSettings]:
    """Return the settings of the service's workers in one arrangement, on processors of theirs."""
    arranged = arrange(service, Arrangement(placement, threads))
    planned: Plan = share(plan(arranged, PlanOptions(threads=threads)), processors.usable())
    return {worker.role: worker.settings for worker in planned.workers}


async def started(
    stack: contextlib.AsyncExitStack, name: str, settings: WorkerSettings, folder: Path
) -> Peer:
    """Start a target's or a draft's process until the stack is closed.

    `name`: of the side; of a target also `ALL_PARALLEL`. `folder` is for settings and links.
    """
    role = settings.role.value
    file = folder / f"{role}-{name.replace(' ', '-')}.json"
    file.write_text(settings.to_json())
    command = [sys.executable, "-m", f"bench.swiftspec.{role}_process", "--settings", str(file)]
    command += ["--side", name, "--links", str(folder)]
    peer = peer_started(f"{name} {role}", command, {**os.environ, **QUIET_LIBRARIES})
    return await stack.enter_async_context(peer)


async def link(sides: Sequence[Side], addresses: Sequence[str]) -> dict[str, str]:
    """Link the one target of these sides to the drafts at their addresses, one after the other.

    Returns what carries each one's messages.
    """
    found = {}
    for count, side in enumerate(sides, start=1):
        said = await side.target.ask(side=side.name, addresses=addresses[:count])
        found[side.name] = said["transport"]
    return found


async def link_near(sides: Sequence[Side]) -> dict[str, str]:
    """Link directly, as `outrider run` does on one machine."""
    return await link(sides, [f"127.0.0.1:{side.port('near')}" for side in sides])


async def part(sides: Sequence[Side]) -> None:
    """End all links of these sides."""
    await sides[0].target.ask(side=sides[0].name, addresses=[])


@contextlib.asynccontextmanager
async def delayed(sides: Sequence[Side], seconds: float) -> AsyncIterator[None]:
    """Link sides to their drafts by gRPC that takes so much longer each way; part them again."""
    with contextlib.ExitStack() as stack:
        proxies = [Proxy(f"127.0.0.1:{side.port('far')}", seconds) for side in sides]
        await link(sides, [stack.enter_context(proxy).address for proxy in proxies])
        yield
        await part(sides)
