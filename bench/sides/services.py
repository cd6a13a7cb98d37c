"""Services under test: started in one arrangement each, asked one after the other, counted.

Leaves which sides a benchmark compares, and what follows from their answers, to the benchmarks.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from bench.record.report import Prompt
from outrider.cli.local.service import placed
from outrider.cli.local.trial import running
from outrider.cli.service.arrangement import Arrangement, changed
from outrider.cli.terminal.progress import reporter
from outrider.cli.top import difference
from outrider.cli.workers.supervisor import StartOptions
from outrider.client import AsyncClient, Counters, Message, Result, Sampling, State
from outrider.operator.plan import PlanOptions
from outrider.operator.spec import Placement, SpeculationMode, SpeculativeService
from outrider.operator.spec.speculation import Proposer

Name = TypeVar("Name")
WITHOUT_ANSWERS = (Proposer.DRAFT, Proposer.SUFFIX)
"""Sources of a side, which is asked the same again and would know the answer."""
SERVICE = Path(__file__).parents[2] / "examples" / "smollm2.yaml"
MODES = {
    "greedy": Sampling(temperature=0.0),
    "temperature 0.8": Sampling(temperature=0.8, seed=1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer of one side: its tokens, and the cost of decoding them."""

    token_ids: tuple[int, ...]
    tokens: int
    """Without the first one, which is the prompt's."""
    seconds: float
    passes: int
    draft_rows: int
    accepted_rows: int
    wait_seconds: float
    plain_seconds: float
    first_guesses: int = 0
    """Passes for which the draft had a likeliest next token."""
    first_hits: int = 0
    """Passes whose likeliest next token of the draft was right."""

    @classmethod
    def of(cls, result: Result) -> "Answer":
        """Return the figures of a client's result."""
        usage, timing = result.usage, result.timing
        return cls(
            token_ids=result.token_ids,
            tokens=usage.completion_tokens - 1,
            seconds=timing.decode_seconds,
            passes=usage.passes,
            draft_rows=usage.draft_rows,
            accepted_rows=usage.accepted_rows,
            wait_seconds=timing.draft_wait_seconds,
            plain_seconds=timing.plain_seconds,
            first_guesses=usage.first_guesses,
            first_hits=usage.first_hits,
        )

    @classmethod
    def of_peer(cls, token_ids: Sequence[int], seconds: float) -> "Answer":
        """Return the figures of an engine that counts no passes: one is taken for each token."""
        tokens = len(token_ids) - 1
        return cls(
            token_ids=tuple(token_ids),
            tokens=tokens,
            seconds=seconds,
            passes=max(1, tokens),
            draft_rows=0,
            accepted_rows=0,
            wait_seconds=0.0,
            plain_seconds=0.0,
        )


class Counts(NamedTuple):
    """Counters of a target and, added up, of its drafts."""

    target: Counters
    drafts: tuple[Counters, ...]

    def since(self, before: "Counts") -> "Counts":
        """Return what was counted since then; the drafts must be the same."""
        pairs = zip(before.drafts, self.drafts, strict=True)
        return Counts(
            difference(before.target, self.target), tuple(difference(*pair) for pair in pairs)
        )


class Side(Protocol):
    """One of those that are compared."""

    @property
    def name(self) -> str:
        """As the report has it."""

    async def ask(self, prompt: Prompt, tokens: int, sampling: Sampling) -> Answer:
        """Return one answer of at most so many tokens."""

    async def counts(self) -> Counts | None:
        """Return the counters so far; None if they are not known."""


@dataclass(frozen=True, slots=True)
class Service:
    """A service of this build."""

    name: str
    client: AsyncClient
    drafts: tuple[AsyncClient, ...]
    arrangement: Arrangement

    async def ask(self, prompt: Prompt, tokens: int, sampling: Sampling) -> Answer:
        """Return one answer."""
        return Answer.of(await self.result([Message("user", prompt.text)], tokens, sampling))

    async def ids(self, prompt: Prompt) -> tuple[int, ...]:
        """Return a prompt's ids, which engines get that are to answer the same."""
        return await self.client.tokenize([Message("user", prompt.text)])

    async def result(
        self, prompt: Sequence[Message] | Sequence[int], tokens: int, sampling: Sampling
    ) -> Result:
        """Return the result of one request."""
        return await self.client.complete(
            prompt,
            max_tokens=tokens,
            sampling=sampling,
            speculate=self.arrangement.placement is not None,
        )

    async def counts(self) -> Counts:
        """Return the counters of the target and its drafts."""
        drafts = [(await draft.state()).counters for draft in self.drafts]
        return Counts((await self.client.state()).counters, tuple(drafts))

    async def state(self) -> State:
        """Return the target's state."""
        return await self.client.state()


async def started(
    stack: contextlib.AsyncExitStack,
    service: SpeculativeService,
    name: str,
    arrangement: Arrangement,
) -> Service:
    """Start a service until the stack is closed.

    Drafting is never turned off: sides measure speculation, not the decision to do without; and
    earlier answers are no source: sides are asked the same again. Where
    the placement is Auto, the arrangement is what it comes to here.
    """
    start = StartOptions(PlanOptions(), reporter())
    if arrangement.placement is Placement.AUTO:
        async with placed(service, start) as (local, _):
            arrangement = local.arrangement
    sources = [one for one in WITHOUT_ANSWERS if one in service.spec.speculation.sources]
    kept_on = with_speculation(service, mode=SpeculationMode.STATIC, sources=tuple(sources))
    beginning = running(kept_on, arrangement, start)
    client = await stack.enter_async_context(beginning)
    links = (await client.state()).links
    drafts = [await stack.enter_async_context(AsyncClient(link.address)) for link in links]
    return Service(name, client, tuple(drafts), arrangement)


def with_speculation(service: SpeculativeService, **changes: Any) -> SpeculativeService:
    """Return the service with other fields of `speculation`."""
    return changed(service, speculation=changes)


def without_draft(service: SpeculativeService) -> SpeculativeService:
    """Return the service with a target alone."""
    return service.model_copy(update={"spec": service.spec.model_copy(update={"draft": None})})


def with_engine(service: SpeculativeService, **changes: Any) -> SpeculativeService:
    """Return the service with other fields of its target's `engine`."""
    engine = service.spec.target.engine.model_copy(update=changes)
    return changed(service, target={"engine": engine})


async def fastest(sides: Mapping[str, Side], chosen: Sequence[Prompt], tokens: int) -> str:
    """Return the name of the side with the most tokens a second over a few greedy answers."""
    rates = {}
    for name, one in sides.items():
        answers = [await one.ask(prompt, tokens, MODES["greedy"]) for prompt in chosen]
        rates[name] = sum(a.tokens for a in answers) / sum(a.seconds for a in answers)
    return max(rates, key=lambda name: rates[name])


def turns(names: list[Name], number: int) -> list[Name]:
    """Return the names from another first one at each number."""
    first = number % len(names)
    return [*names[first:], *names[:first]]
