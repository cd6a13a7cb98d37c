"""What a target runs in one pass: rows of several sequences.

Made by the target's scheduler, read by runner and books.
"""

from collections.abc import Sequence as Several
from dataclasses import dataclass, field

from outrider.worker.model.rows import Rows, joined
from outrider.worker.sampling.logits_processor import LogitsProcessor, path_tokens
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.target.selection import PlainCost, SelectedRows
from outrider.worker.target.sequence import Sequence
from outrider.worker.tree.walk import Ints


@dataclass(frozen=True, slots=True)
class TargetPart:
    """One sequence's rows: its root and nodes, or a chunk of its prompt."""

    sequence: Sequence
    rows: Rows
    chosen: SelectedRows
    """The nodes among the rows."""

    @property
    def sampling(self) -> SamplingParams:
        """How the runner draws."""
        return self.sequence.submit.sampling

    @property
    def logits_processor(self) -> LogitsProcessor | None:
        """What the sequence's settings make of the logits first."""
        return self.sequence.logits_processor

    @property
    def logits_wanted(self) -> bool:
        """Whether the request asks how likely its tokens were."""
        return self.sequence.submit.logprobs is not None

    @property
    def path_tokens(self) -> Ints:
        """[outputs, deepest] each row's tokens after the root, for the shaper."""
        return path_tokens(self.chosen.paths, self.chosen.tokens)


@dataclass(frozen=True, slots=True)
class TargetBatch:
    """One pass."""

    parts: Several[TargetPart]
    """Those that decode, then those that run prompts."""
    decoding_count: int
    expected_seconds: float
    """What the pass should take, from the step costs."""
    plain: PlainCost
    """What the step would take without nodes."""
    started: float
    rows: Rows = field(init=False)
    """Of all parts, in their order."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", joined([part.rows for part in self.parts]))

    @property
    def decoding(self) -> Several[TargetPart]:
        """The parts past their prompts."""
        return self.parts[: self.decoding_count]

    @property
    def prompt_rows(self) -> int:
        """Rows of prompts."""
        return sum(part.rows.count for part in self.parts[self.decoding_count :])
