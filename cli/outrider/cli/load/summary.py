"""The figures of a run, from how its requests went; what `--json` and the table show.

Leaves showing them to `show` and `plot`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outrider.cli.load.memory import MemoryGrowth
from outrider.cli.load.outcome import Outcome, Status
from outrider.cli.load.percentiles import Spread, spread, weighted
from outrider.cli.load.slo import Objective, goodput
from outrider.cli.load.texts import TextCheck

READ = (Status.COMPLETED, Status.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run in figures; seconds throughout. None where nothing was measured."""

    sent: int
    completed: int
    cancelled: int
    rejected: int
    """Answered 429, after all retries."""
    failed: int
    interrupted: int
    """On their way when the run was ended early."""
    retries: int
    problems: dict[str, int]
    """Why requests failed, and how many for each reason."""
    duration: float
    """From the start to the end of the last request."""
    request_rate: float
    """Completed requests by duration."""
    token_rate: float
    """Tokens of all answers by duration; of one that did not end, each chunk counts as a token."""
    prompt_tokens: int | None
    """As reported by the endpoint."""
    completion_tokens: int
    tokens_reported: bool
    """Whether every completed answer had usage; else chunks are counted instead."""
    accepted_prediction_tokens: int | None
    rejected_prediction_tokens: int | None
    ttft: Spread | None
    """Time to first token."""
    inter_token: Spread | None
    """Gap before each chunk by its tokens, weighted by them."""
    chunk_gap: Spread | None
    """Gap before each chunk: what a reader sees."""
    tpot: Spread | None
    """Time per output token after the first, one for each request."""
    latency: Spread | None
    """From sending to the end of the stream, of completed requests."""
    behind_schedule: Spread | None
    """How late requests were sent: large where this tool is the bottleneck."""
    goodput: float | None
    """Share of requests that met all objectives; None without objectives."""
    texts: TextCheck | None
    memory: list[MemoryGrowth]


def summary(
    outcomes: Sequence[Outcome],
    *,
    wanted: Sequence[Objective] = (),
    texts: TextCheck | None = None,
    memory: Sequence[MemoryGrowth] = (),
) -> Summary:
    """Sum up; latencies are those of completed requests, first tokens of cancelled ones too."""
    counts = Counter(one.status for one in outcomes)
    completed = [one for one in outcomes if one.status is Status.COMPLETED]
    read = [one for one in outcomes if one.status in READ]
    duration = max((one.ended for one in outcomes), default=0.0)
    tokens = sum(one.answer.tokens for one in outcomes)
    return Summary(
        sent=len(outcomes),
        completed=len(completed),
        cancelled=counts[Status.CANCELLED],
        rejected=counts[Status.REJECTED],
        failed=counts[Status.FAILED],
        interrupted=counts[Status.INTERRUPTED],
        retries=sum(one.retries for one in outcomes),
        problems=dict(Counter(one.problem for one in outcomes if one.problem).most_common()),
        duration=duration,
        request_rate=len(completed) / duration if duration else 0.0,
        token_rate=tokens / duration if duration else 0.0,
        prompt_tokens=_total(outcomes, lambda one: one.answer.usage.prompt_tokens),
        completion_tokens=tokens,
        tokens_reported=all(one.answer.usage.completion_tokens is not None for one in completed),
        accepted_prediction_tokens=_total(outcomes, lambda one: one.answer.usage.accepted_tokens),
        rejected_prediction_tokens=_total(outcomes, lambda one: one.answer.usage.rejected_tokens),
        ttft=spread(one.ttft for one in read if one.ttft is not None),
        inter_token=weighted(gap for one in completed for gap in one.token_gaps),
        chunk_gap=spread(gap for one in read for gap in one.gaps),
        tpot=spread(one.tpot for one in completed if one.tpot is not None),
        latency=spread(one.latency for one in completed),
        behind_schedule=spread(max(0.0, one.sent - one.due) for one in outcomes),
        goodput=goodput(outcomes, wanted) if wanted else None,
        texts=texts,
        memory=list(memory),
    )


def _total(outcomes: Sequence[Outcome], figure: Callable[[Outcome], int | None]) -> int | None:
    known = [value for one in outcomes if (value := figure(one)) is not None]
    return sum(known) if known else None
