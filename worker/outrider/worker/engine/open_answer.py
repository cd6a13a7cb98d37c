"""Answer that comes from an engine, cut where its text ends it, and the counters of such answers.

Leaves text to its reader, which `api.answer_text` has.
"""

import bisect
import dataclasses
import itertools
from asyncio import Queue
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from outrider.contract.counters import Counters
from outrider.worker.messages import EngineReport, Finish, Finished, Submit, Tokens

Event = Tokens | Finished
COUNTED = (
    "generation_tokens",
    "requests_finished",
    "requests_cancelled",
    "requests_at_length",
    "requests_failed",
    "requests_expired",
)
"""Counters of answers: the handle's where text may end them, which the engine does not see."""


class AnswerReader(Protocol):
    """Makes text of the tokens of one answer."""

    @property
    def ended(self) -> bool:
        """Whether the text has ended."""

    def read(self, ids: Sequence[int]) -> int:
        """Take the next tokens; return how many of them belong to the answer."""


@dataclass(slots=True)
class OpenAnswer:
    """One answer that comes."""

    submit: Submit
    reader: AnswerReader
    events: "Queue[Event | None]"
    tokens: int = 0
    passes: int = 0
    accepted: int = 0
    """Tokens that were draft tokens: all of a pass but its last one, which it sampled."""

    def take(self, tokens: Tokens) -> Tokens | None:
        """Return what of the next tokens belongs to the answer; None: its text has ended."""
        if self.reader.ended:
            return None
        kept = _first(tokens, self.reader.read(tokens.ids))
        self.tokens += len(kept.ids)
        self.passes += kept.passes
        is_cut = sum(kept.sizes) > len(kept.ids)
        self.accepted += len(kept.ids) - kept.passes + is_cut
        return kept

    def end(self, finished: Finished) -> Finished:
        """Return the end of the answer: its text's, whatever its engine did meanwhile."""
        if not self.reader.ended:
            return finished
        usage, tokens = finished.usage, self.tokens
        usage = dataclasses.replace(
            usage,
            completion_tokens=tokens,
            passes=min(usage.passes, self.passes - 1),  # the first one is prefill's
            accepted_rows=min(usage.accepted_rows, self.accepted),
            accepted_prediction_tokens=min(usage.accepted_prediction_tokens, self.accepted),
        )
        return dataclasses.replace(finished, finish=Finish.STOP, usage=usage, detail="")


def count_finish(counters: Counters, finish: Finish) -> None:
    """Count a request that ended."""
    if finish in (Finish.CANCELLED, Finish.EXPIRED, Finish.STAGES_MISSING):
        counters.requests_cancelled += 1
    else:
        counters.requests_finished += 1
    counters.requests_expired += finish is Finish.EXPIRED
    counters.requests_failed += finish is Finish.FAILED
    counters.requests_at_length += finish is Finish.LENGTH


def with_answers(report: EngineReport, answers: Counters) -> EngineReport:
    """Return an engine's report with the answers that the engine did not count."""
    counters = report.counters
    sums = {name: getattr(counters, name) + getattr(answers, name) for name in COUNTED}
    return dataclasses.replace(report, counters=dataclasses.replace(counters, **sums))


def _first(tokens: Tokens, count: int) -> Tokens:
    """Return the first `count` tokens, and the passes that brought them."""
    if count == len(tokens.ids):
        return tokens
    passes = bisect.bisect_left(list(itertools.accumulate(tokens.sizes)), count) + 1
    return dataclasses.replace(
        tokens,
        ids=tokens.ids[:count],
        sizes=tokens.sizes[:passes],
        logprobs=tokens.logprobs[:count],
        tree=tokens.tree if passes == tokens.passes else None,
    )
