"""The records by which a stage warms up, one by one and all at once."""

import numpy as np
import pytest
from numpy.typing import NDArray

from outrider.worker.launch.warm_up_stage import life, warm_up_stage
from outrider.worker.model.rows import Rows
from outrider.worker.pipeline.records import End, Results, Segment
from outrider.worker.pipeline.stage import Stage
from outrider.worker.pipeline.stage_sampler import StageSampler
from outrider.worker.sampling.logits_processor import LogitsProcessors
from outrider.worker.sampling.params import SamplingParams


class CountingLayers:
    """Layers that count rows, and whose results are zeros."""

    def __init__(self, hidden: int | None) -> None:
        self.hidden = hidden
        self.rows = 0
        self.moved = 0

    def compute(self, rows: Rows, hidden: NDArray[np.float32] | None) -> NDArray[np.float32]:
        assert (hidden is None) is (self.hidden is None)
        self.rows += rows.count
        return np.zeros((rows.count, 32), np.float32)

    def move(self, sources: NDArray[np.int32], destinations: NDArray[np.int32]) -> None:
        self.moved += len(sources)


@pytest.mark.parametrize("hidden", [None, 8])
@pytest.mark.parametrize("last", [True, False])
def test_every_record_is_handled(hidden: int | None, last: bool) -> None:
    layers = CountingLayers(hidden)
    stage = Stage(layers, StageSampler(LogitsProcessors(32)) if last else None)
    warm_up_stage(stage, hidden)
    assert layers.rows == 3 * 6
    assert layers.moved == 3 * 2
    assert not stage.incoming
    assert not stage.outgoing


@pytest.mark.parametrize("last", [True, False])
def test_a_sequence_that_ends_before_it_ran_breaks_no_rule(last: bool) -> None:
    """Its rows are dropped; the Move that would have committed them is still in the queue."""
    layers = CountingLayers(None)
    stage = Stage(layers, StageSampler(LogitsProcessors(32)) if last else None)
    for record in life(1, SamplingParams(), None):
        stage.receive(record)
    while stage.step():
        pass
    assert layers.rows == 0
    kinds = (Results,) if last else (Segment, End)
    assert [type(r) for r in stage.outgoing if isinstance(r, kinds)].count(kinds[-1]) > 0
