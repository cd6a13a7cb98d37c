"""Waits for growth before passes that compute a prompt beside a sequence that decodes."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from outrider.worker.draft.batch import DraftBatch
from outrider.worker.target.batch import TargetBatch
from outrider.worker.target.prefill import Prompt, Streams, shares
from tests.unit.worker.colocated_pair import ColocatedPair
from tests.unit.worker.pair import DRAFT_SECONDS, PASS_SECONDS, Pair

SHORT, LONG = [1, 2, 3], list(range(2, 62)) * 5
ANSWER, LATER = 160, 30
"""Tokens of the answers to the short prompt and to the long one."""
ROWS = 40
"""Rows of the long prompt in a pass: it takes eight passes."""
ROW_CAPACITY = Pair.row_capacity


@dataclass
class FewRows:
    """Gives the prompts of a pass so many rows."""

    rows: int

    def plan(self, prompts: Sequence[Prompt], streams: Streams, most: int) -> list[int]:
        return shares(prompts, min(self.rows, most, sum(prompt.rest for prompt in prompts)))


@dataclass
class Watched(ColocatedPair):
    """Notes the passes that compute the long prompt beside the short one's answer."""

    noise: float = 0.1
    prompt_rows: int = ROWS
    draft_seconds: float = DRAFT_SECONDS
    nodes: list[int] = field(default_factory=list)
    """Node rows of each."""
    waits: list[float] = field(default_factory=list)
    """Seconds for which the draft ran before it, over those of the pass without nodes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.target.prefill_planner = FewRows(self.prompt_rows)
        self.target.row_selector.account.growth_costs = lambda sequences: self.draft_seconds

    def watched_turn(self) -> None:
        """Run one pass of either role."""
        before, self.last = self.now, getattr(self, "last", 0.0)
        step = self.colocated.next(before)
        assert isinstance(step, TargetBatch | DraftBatch)
        drafting = isinstance(step, DraftBatch)
        self.now += self.draft_seconds if drafting else PASS_SECONDS
        self.colocated.settle(step, self.colocated.run(step), self.now)
        if isinstance(step, TargetBatch):
            if step.decoding_count and step.prefill_rows:
                self.nodes.append(sum(len(part.nodes) for part in step.parts))
                self.waits.append((before - self.last) / (step.plain.step + step.plain.prefill))
            self.last = self.now

    def answer_both(self) -> None:
        """Answer both; the long prompt comes while the short one's answer is written."""
        self.submit(SHORT, ANSWER)
        while len(self.text()) < ANSWER // 4:
            self.watched_turn()
        self.submit(LONG, LATER, 2)
        while self.finished(1) is None or self.finished(2) is None:
            self.watched_turn()
        assert self.text(1) == self.expected(SHORT, ANSWER)
        assert self.text(2) == self.expected(LONG, LATER)


def test_a_pass_with_a_prompt_waits_for_growth_that_is_worth_it() -> None:
    pair = Watched()
    pair.answer_both()
    assert len(pair.nodes) >= 5
    assert sum(count > 0 for count in pair.nodes) >= len(pair.nodes) - 1


def test_a_pass_that_prompts_fill_is_not_waited_for() -> None:
    pair = Watched(prompt_rows=ROW_CAPACITY)
    pair.answer_both()
    assert len(pair.nodes) >= 4
    assert max(pair.waits[:-1]) == 0  # the last one is what is left of the prompt


def test_a_prompt_does_not_wait_for_growth_that_is_not() -> None:
    pair = Watched(draft_seconds=10 * PASS_SECONDS)
    pair.answer_both()
    assert len(pair.nodes) >= 5
    assert pair.nodes.count(0) >= len(pair.nodes) - 1
