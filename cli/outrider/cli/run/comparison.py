"""A service beside the same one in a second arrangement: each prompt is asked of both, in turns.

Neither works while the other answers. Leaves what is seen to `comparison_screen`.
"""

from dataclasses import replace

from rich.console import Console

from outrider.cli.failures import BadInput
from outrider.cli.local.service import LocalService
from outrider.cli.run import figures
from outrider.cli.run.answers import Answers, compared
from outrider.cli.run.comparison_screen import Comparison, reason, verdict
from outrider.cli.run.prompts import PromptSet, ask
from outrider.cli.service.arrangement import Arrangement
from outrider.client import AsyncClient, Result
from outrider.operator.spec import SpeculativeService

Running = tuple[LocalService, AsyncClient]
"""A service that runs, and a client of it."""


def require_draft(service: SpeculativeService) -> None:
    """Raise `BadInput` for a service that has no draft to compare with."""
    if service.spec.draft is None or service.spec.draft.replicas == 0:
        raise BadInput("--compare needs a draft.")


def counterpart(local: LocalService) -> Arrangement:
    """Return what a service is compared with; raises `BadInput` where there is nothing."""
    second = local.counterpart()
    if second is None:
        raise BadInput("--compare needs a draft that this machine has room for.")
    return second


async def compare(
    own: Running, second: Arrangement, questions: PromptSet, console: Console
) -> Answers:
    """Start the second arrangement beside the first, and ask both each prompt."""
    local, client = own
    other = local.other(second, (await client.state()).dtype)
    hand = other.workers()

    async def work() -> Answers:
        await hand.tell_paths()
        async with hand.target.access.client(hand.addresses) as other_client:
            found = await _in_turns(own, (other, other_client), questions, console)
        others = local.choice.others(local.arrangement, second) if local.choice else ()
        return replace(found, others=others)

    async with hand:
        return await hand.run(work)


async def _in_turns(
    first: Running, second: Running, questions: PromptSet, console: Console
) -> Answers:
    """Ask each prompt of the first, and then of the second with the same seed."""
    (local, client), (other, other_client) = first, second
    names = (local.arrangement.name, other.arrangement.name)
    comparison = Comparison.between(*(names if local.drafts else reversed(names)))
    shown = comparison.screen(drafted=local.drafts, shown=True)
    counted = comparison.screen(drafted=other.drafts, shown=False)
    own: list[Result] = []
    theirs: list[Result] = []
    seeds: list[int] = []
    with comparison.on(console):
        again = ask(other_client, questions, counted, seeds, speculate=other.drafts)
        async for result in ask(client, questions, shown, speculate=local.drafts):
            own.append(result)
            seeds.append(result.seed)
            theirs.append(await anext(again))
        arrangements = (local.arrangement, other.arrangement)
        found = compared(questions.prompts, arrangements, own, theirs)
        drafted = figures.figures([answer.drafted for answer in found.answers])
        comparison.why = reason(drafted.tokens_per_pass, drafted.acceptance_rate)
        ratio, same = figures.times(found.answers), figures.same_text(found.answers)
        chosen = local.drafts and local.choice is not None
        comparison.said = verdict(ratio, drafted.tokens, same, chosen)
    return found
