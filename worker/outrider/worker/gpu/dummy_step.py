"""A target's step of rows that mean nothing: for measuring, and for capturing graphs.

Leaves running it to `target`.
"""

from dataclasses import dataclass

from outrider.worker.gpu.target_runner import GREEDY
from outrider.worker.model.rows import Rows
from outrider.worker.sampling.logits_processor import NO_PATH
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.tree.walk import Ints


@dataclass(frozen=True, slots=True)
class DummyStep:
    """One part, all rows its own, which draws after each row with output."""

    rows: Rows
    sampling: SamplingParams = GREEDY
    logits_processor: None = None
    logits_wanted: bool = False

    @property
    def parts(self) -> tuple["DummyStep"]:
        """Itself."""
        return (self,)

    @property
    def path_tokens(self) -> Ints:
        """None: there is no shaper."""
        return NO_PATH
