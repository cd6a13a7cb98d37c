"""A service beside itself without speculation: each prompt is asked of both, in turns.

The second side is another arrangement; of a service without a draft, the same target by plain
decoding. Neither works while the other answers. Leaves what is seen to `comparison_screen`.
"""

from dataclasses import dataclass, replace

from rich.console import Console

from outrider.cli.failures import BadInput
from outrider.cli.local.service import LocalService
from outrider.cli.run import figures
from outrider.cli.run.answers import Answers, compared
from outrider.cli.run.comparison_screen import DRAFT, TEXT, Comparison, reason, verdict
from outrider.cli.run.prompts import PromptSet, ask
from outrider.cli.service.arrangement import Arrangement, threads_in_words
from outrider.client import AsyncClient, Result
from outrider.operator.spec import SpeculationMode, SpeculativeService
from outrider.operator.spec.speculation import Proposer

Running = tuple[LocalService, AsyncClient]
"""A service that runs, and a client of it."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two that answer."""

    client: AsyncClient
    name: str
    speculates: bool


def refuse_without_speculation(service: SpeculativeService) -> None:
    """Raise `BadInput` for a service that has nothing to compare plain decoding with."""
    spec = service.spec
    if spec.draft is None:
        local = {*spec.speculation.sources} - {Proposer.DRAFT}
        if not local or spec.speculation.mode is SpeculationMode.DISABLED:
            raise BadInput(
                "--compare needs a draft, or Suffix or Answers in spec.speculation.sources with "
                "a mode that is not Disabled."
            )
    elif spec.draft.replicas == 0:
        raise BadInput("--compare needs a draft; spec.draft.replicas is 0.")


def counterpart(local: LocalService) -> Arrangement | None:
    """Return what a service with a draft is compared with, None for one without a draft; raises
    `BadInput` where there is nothing."""
    if local.described.spec.draft is None:
        return None
    second = local.counterpart()
    if second is None:
        raise BadInput("--compare needs a draft that this machine has room for.")
    return second


async def compare(
    own: Running, second: Arrangement | None, questions: PromptSet, console: Console
) -> Answers:
    """Ask each prompt of a service and of its `counterpart`, which is started beside it."""
    local, client = own
    name = local.arrangement.name
    if second is None:
        guessing = f"{TEXT}, {threads_in_words(local.arrangement.threads)}"
        sides = Side(client, guessing, True), Side(client, name, False)
        return await _in_turns(*sides, questions, console, subject=TEXT)
    other = local.other(second, (await client.state()).dtype)
    hand = other.workers()

    async def work() -> Answers:
        await hand.tell_paths()
        async with hand.target.access.client(hand.addresses) as other_client:
            first = Side(client, name, local.drafts)
            beside = Side(other_client, other.arrangement.name, other.drafts)
            chosen = local.drafts and local.choice is not None
            found = await _in_turns(first, beside, questions, console, chosen=chosen)
        others = local.choice.others(local.arrangement, second) if local.choice else ()
        return replace(found, others=others)

    async with hand:
        return await hand.run(work)


async def _in_turns(
    first: Side,
    second: Side,
    questions: PromptSet,
    console: Console,
    *,
    chosen: bool = False,
    subject: str = DRAFT,
) -> Answers:
    """Ask each prompt of the first, and then of the second with the same seed."""
    names = (first.name, second.name)
    in_order = names if first.speculates else names[::-1]
    comparison = Comparison.between(*in_order, subject=subject)
    shown = comparison.screen(drafted=first.speculates, shown=True)
    counted = comparison.screen(drafted=second.speculates, shown=False)
    own: list[Result] = []
    theirs: list[Result] = []
    seeds: list[int] = []
    with comparison.on(console):
        again = ask(second.client, questions, counted, seeds, speculate=second.speculates)
        async for result in ask(first.client, questions, shown, speculate=first.speculates):
            own.append(result)
            seeds.append(result.seed)
            theirs.append(await anext(again))
        found = compared(questions.prompts, names, own, theirs, own_drafted=first.speculates)
        drafted = figures.figures([answer.drafted for answer in found.answers])
        comparison.why = reason(drafted.tokens_per_pass, drafted.acceptance_rate)
        plain = figures.figures([answer.plain for answer in found.answers if answer.plain])
        for side, one in zip(comparison.sides, (drafted, plain), strict=True):
            side.measured = one.tokens_per_second  # what the verdict is about
        ratio, same = figures.ratio(drafted, plain), figures.same_text(found.answers)
        comparison.said = verdict(ratio, drafted.tokens, same, chosen, subject)
    return found
