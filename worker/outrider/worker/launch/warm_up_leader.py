"""Warm-up of a pipelined target's leader: all that it compiles runs once before it serves.

The leader is dropped afterwards; only compiled code remains.
"""

import numpy as np

from outrider.worker.kv.block_pool import BlockPool
from outrider.worker.launch.warmup import arbitrary_growth
from outrider.worker.messages import Submit
from outrider.worker.pipeline.leader import Leader, LeaderLimits
from outrider.worker.pipeline.records import Results, Segment
from outrider.worker.pipeline.segment_size import SegmentPlan
from outrider.worker.pipeline.text_search import TextSearch
from outrider.worker.sampling.params import SamplingParams

PROMPT = np.array([1, 2, 3], np.int32)
TURNS = 6
GRANTED = 16
TOKEN = 4
"""What every row chooses: a token of the growth, so that walks fall in."""


def warm_up_leader(vocabulary: int) -> None:
    """Run a request whose draft sends arbitrary nodes, and whose stages choose one token."""
    leader = Leader(BlockPool(4, 128), SegmentPlan(4, 2, 16), LeaderLimits(1, tree_blocks=1))
    mirror = leader.submit(Submit(1, PROMPT, SamplingParams(), 4 * TURNS, (), True, 0.0))
    sequence = leader.find(1)
    assert sequence is not None
    text = TextSearch.of(sequence)
    text.read_on()
    mirror.attach()
    allowed = np.ones(vocabulary, np.bool_)
    for turn in range(TURNS):
        text.search(GRANTED, TURNS)
        while leader.fill():
            pass
        growth = arbitrary_growth(mirror.root_position, 3 * turn + 1).growth
        mirror.receive(growth, GRANTED, allowed)
        segments = [record for record in leader.outgoing if isinstance(record, Segment)]
        leader.outgoing.clear()
        for segment in segments:
            leader.receive(answer(segment))
    leader.detach(1)


def answer(segment: Segment) -> Results:
    """Return the results of stages that choose one token everywhere."""
    rows = segment.rows[segment.sample]
    count = len(rows)
    nothing = np.zeros((count, 0), np.int32)
    nan = np.full(count, np.nan, np.float32)
    tokens = np.full(count, TOKEN, np.int32)
    return Results(segment.number, rows, tokens, nan, nothing, nothing.astype(np.float32))
