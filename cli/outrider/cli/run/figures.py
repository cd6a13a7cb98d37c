"""The figures of one answer or of several, as `--json` prints them and as people read them.

What each figure means is `outrider.client.Result`'s; several answers are weighted by what each
figure is a share of, which gives the ratio of the sums.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from outrider.cli.run.answers import Answers, PromptAnswer
from outrider.client import FinishReason, Result
from outrider.contract.counters import seldom_right


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFigures:
    """Cost of answers; None where there was nothing to divide by."""

    tokens: int
    """Tokens of the answers."""
    tokens_per_second: float | None
    """Tokens by the seconds from the first token to the last."""
    tokens_per_pass: float | None
    """Committed tokens by target passes."""
    acceptance_rate: float | None
    """Accepted draft tokens by verified ones."""
    gain: float | None
    """Seconds that plain decoding would have taken, by seconds taken; None where no draft token was
    verified."""
    draft_share: float | None
    """Share of passes in which the draft had something to offer."""
    passes: int
    """Target passes."""
    draft_rows: int
    """Draft tokens that were verified."""
    draft_rows_accepted: int
    """Verified draft tokens that were committed."""
    ttft_seconds: float
    """Time to first token; of several answers, the mean."""


def figures(results: Sequence[Result]) -> AnswerFigures:
    """The figures of one or more answers together."""
    drafted = any(r.usage.draft_rows for r in results)
    return AnswerFigures(
        tokens=sum(r.usage.completion_tokens for r in results),
        tokens_per_second=_mean(
            results, lambda r: r.tokens_per_second, lambda r: r.timing.decode_seconds
        ),
        tokens_per_pass=_mean(results, lambda r: r.tokens_per_pass, lambda r: r.usage.passes),
        acceptance_rate=_mean(results, lambda r: r.acceptance, lambda r: r.usage.draft_rows),
        gain=_mean(results, lambda r: r.gain, lambda r: r.timing.decode_seconds)
        if drafted
        else None,
        draft_share=_mean(results, lambda r: r.draft_share, lambda r: r.usage.passes),
        passes=sum(r.usage.passes for r in results),
        draft_rows=sum(r.usage.draft_rows for r in results),
        draft_rows_accepted=sum(r.usage.accepted_rows for r in results),
        ttft_seconds=sum(r.timing.first_token_seconds for r in results) / len(results),
    )


def ratio(drafted: AnswerFigures, plain: AnswerFigures) -> float | None:
    """Return tokens per second with the draft, by tokens per second without."""
    if drafted.tokens_per_second is None or not plain.tokens_per_second:
        return None
    return drafted.tokens_per_second / plain.tokens_per_second


def times(answers: Sequence[PromptAnswer]) -> float | None:
    """Return the ratio of answers that have been compared."""
    plain = [a.plain for a in answers if a.plain is not None]
    return ratio(figures([a.drafted for a in answers]), figures(plain))


@dataclass(frozen=True, slots=True)
class Line:
    """What one arrangement gave or would give."""

    arrangement: str
    tokens_per_second: float | None
    over_plain: float | None
    ran: bool
    """True if it answered; else it is expected."""


def lines(found: Answers) -> list[Line]:
    """The two arrangements that were compared, and what others would give; the fastest first."""
    drafted = figures([a.drafted for a in found.answers])
    plain = figures([a.plain for a in found.answers if a.plain is not None])
    base = plain.tokens_per_second or 0.0
    given = [
        Line(found.drafted, drafted.tokens_per_second, ratio(drafted, plain), ran=True),
        Line(found.plain, plain.tokens_per_second, 1.0, ran=True),
    ]
    for other, over in found.others:
        given.append(Line(other.arrangement.name, over * base, over, ran=False))
    return sorted(given, key=lambda line: -(line.tokens_per_second or 0.0))


def as_json(found: Answers) -> dict[str, Any]:
    """Return one object: each answer under `answers`, beside the figures of all."""
    answers = found.answers
    where: dict[str, Any] = {"arrangement": found.arrangement} if found.arrangement else {}
    if found.plain:
        where["arrangements"] = [asdict(line) for line in lines(found)]
    return {"answers": [_answer(one) for one in answers], **_together(answers), **where}


def same_text(answers: Sequence[PromptAnswer]) -> bool:
    """True if each plain answer has the tokens of the drafted one."""
    return all(a.plain is not None and a.plain.token_ids == a.drafted.token_ids for a in answers)


def cut_short(answers: Sequence[PromptAnswer]) -> int:
    """Count the answers that ended at their most tokens."""
    return sum(a.drafted.finish_reason is FinishReason.LENGTH for a in answers)


def draft_is_useless(answers: Sequence[PromptAnswer]) -> bool:
    """True if the draft's first tokens were too seldom accepted, and enough of them were judged."""
    usages = [a.drafted.usage for a in answers]
    return seldom_right(sum(u.first_guesses for u in usages), sum(u.first_hits for u in usages))


def _answer(answer: PromptAnswer) -> dict[str, Any]:
    shown = {"prompt": answer.prompt, **_result(answer.drafted)}
    if answer.plain is not None:
        shown |= {"plain": _result(answer.plain), **_compared([answer])}
    return shown


def _result(result: Result) -> dict[str, Any]:
    return {
        "text": result.text,
        "token_ids": list(result.token_ids),
        "finish_reason": str(result.finish_reason),
        "seed": result.seed,
        "prompt_tokens": result.usage.prompt_tokens,
        "total_seconds": result.timing.total_seconds,
        "draft_wait_seconds": result.timing.draft_wait_seconds,
        **asdict(figures([result])),
    }


def _together(answers: Sequence[PromptAnswer]) -> dict[str, Any]:
    shown = asdict(figures([a.drafted for a in answers]))
    plain = [a.plain for a in answers if a.plain is not None]
    return shown | {"plain": asdict(figures(plain)), **_compared(answers)} if plain else shown


def _compared(answers: Sequence[PromptAnswer]) -> dict[str, Any]:
    return {"ratio": times(answers), "same_text": same_text(answers)}


def _mean(
    results: Sequence[Result],
    figure: Callable[[Result], float | None],
    weight: Callable[[Result], float],
) -> float | None:
    known = [(value, weight(r)) for r in results if (value := figure(r)) is not None]
    total = sum(w for _, w in known)
    return sum(value * w for value, w in known) / total if total > 0 else None
