"""Warm-up of a pipeline stage: every record is handled once before a leader may send it.

The stage is dropped afterwards; only compiled code remains.
"""

import time

import numpy as np

from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.launch.warmup import SAMPLINGS
from outrider.worker.pipeline.records import (
    Begin,
    Bools,
    Bytes,
    End,
    Ints,
    Move,
    Record,
    Segment,
)
from outrider.worker.pipeline.stage import Stage
from outrider.worker.sampling.params import SamplingParams

PROMPT = np.array([1, 2, 3], np.int32)
COMMITTED, TREE = 0, 1
"""Blocks of the only sequence."""
MASK_BYTES = BLOCK // 8
LONG = len(SAMPLINGS) + 1
"""Number of the sequence of `pass_seconds`."""


def warm_up_stage(stage: Stage, hidden: int | None) -> None:
    """Run prompts, trees and moves of a few samplings; `hidden`: numbers of a hidden state, None
    for the first stage."""
    for sequence, sampling in enumerate(SAMPLINGS, start=1):
        for record in life(sequence, sampling, hidden):
            stage.receive(record)
            stage.step()  # one by one: the End would drop what waits
            stage.outgoing.clear()


def pass_seconds(stage: Stage, hidden: int | None, rows: int) -> float:
    """Return the seconds of a prompt's segment of so many rows: no pass takes many times as long.

    `hidden` as for `warm_up_stage`, which has to be done.
    """
    none, tree = np.zeros(0, np.int32), np.array([-(-rows // BLOCK)], np.int32)
    places = np.arange(rows, dtype=np.int32)
    masks = np.zeros((rows, MASK_BYTES), np.uint8)
    stage.receive(Begin(LONG, np.ones(rows, np.int32), rows, SamplingParams(), none, tree))
    stage.step()
    stage.receive(segment(LONG, hidden, (places, places, masks), places == rows - 1))
    began = time.perf_counter()
    stage.step()
    return time.perf_counter() - began


def life(sequence: int, sampling: SamplingParams, hidden: int | None) -> list[Record]:
    """Return the records of a sequence that commits a root and its first child."""
    none, tree = np.zeros(0, np.int32), np.array([TREE], np.int32)
    destinations = np.array([BLOCK * COMMITTED + 3, BLOCK * COMMITTED + 4], np.int32)
    sources = np.array([BLOCK * TREE, BLOCK * TREE + 1], np.int32)
    return [
        Begin(sequence, PROMPT, len(PROMPT), sampling, none, tree, logprobs=1),
        prompt_segment(sequence, hidden),
        tree_segment(sequence, hidden),
        Move(sequence, sources, destinations, np.array([BLOCK * TREE + 2], np.int32)),
        End(sequence),
    ]


def prompt_segment(sequence: int, hidden: int | None) -> Segment:
    """Return the committed rows of a prompt, whose last is sampled."""
    places = np.arange(len(PROMPT), dtype=np.int32)
    masks = np.zeros((len(PROMPT), MASK_BYTES), np.uint8)
    return segment(sequence, hidden, (places, places, masks), places == len(PROMPT) - 1)


def tree_segment(sequence: int, hidden: int | None) -> Segment:
    """Return a root and its two children."""
    slots = BLOCK * TREE + np.arange(3, dtype=np.int32)
    positions = len(PROMPT) + np.array([0, 1, 1], np.int32)
    masks = np.zeros((3, MASK_BYTES), np.uint8)
    masks[:, 0] = [0b001, 0b011, 0b101]
    return segment(sequence, hidden, (slots, positions, masks), np.ones(3, np.bool_))


def segment(
    sequence: int, hidden: int | None, places: tuple[Ints, Ints, Bytes], sample: Bools
) -> Segment:
    """Return a segment of one sequence; `places`: slots, positions and masks of its rows."""
    slots, positions, masks = places
    count = len(slots)
    return Segment(
        number=0,
        rows=np.arange(count, dtype=np.int64),
        sequence=np.full(count, sequence, np.int64),
        slots=slots,
        tokens=np.arange(count, dtype=np.int32),
        positions=positions,
        ancestors=masks,
        sample=sample,
        hidden=None if hidden is None else np.ones((count, hidden), np.float32),
    )
