"""Records for tests of single parts."""

import numpy as np

from outrider.worker.messages import Submit
from outrider.worker.pipeline.leader import Leader
from outrider.worker.pipeline.records import Move, Segment
from outrider.worker.pipeline.sequence import PipelinedSequence
from outrider.worker.sampling.params import SamplingParams


def segment(number: int, rows: dict[int, tuple[int, int]]) -> Segment:
    """Return a segment; `rows`: by number, sequence and slot of each."""
    count = len(rows)
    return Segment(
        number=number,
        rows=np.array(list(rows), np.int64),
        sequence=np.array([sequence for sequence, _ in rows.values()], np.int64),
        slots=np.array([slot for _, slot in rows.values()], np.int32),
        tokens=np.zeros(count, np.int32),
        positions=np.zeros(count, np.int32),
        ancestors=np.zeros((count, 1), np.uint8),
        sample=np.ones(count, np.bool_),
        hidden=np.arange(count, dtype=np.float32)[:, None],
    )


def move(sequence: int, sources: list[int], destinations: list[int], freed: list[int]) -> Move:
    arrays = (np.array(slots, np.int32) for slots in (sources, destinations, freed))
    return Move(sequence, *arrays)


def find(leader: Leader, request: int) -> PipelinedSequence:
    """Return the sequence of a request that has not ended."""
    both = (*leader.running, *leader.waiting)
    return next(one for one in both if one.submit.request == request)


def cancel(leader: Leader, request: int) -> None:
    if leader.waiting.remove(request) is None:
        leader.end(find(leader, request))


def submit(request: int, prompt: list[int], max_tokens: int, ends: tuple[int, ...] = ()) -> Submit:
    tokens = np.array(prompt, np.int32)
    return Submit(request, tokens, SamplingParams(), max_tokens, ends, True, float(request))
