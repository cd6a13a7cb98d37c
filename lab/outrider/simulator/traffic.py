"""Traffic of a simulation: the arrivals of a whole service, and the part that a cell gets.

Sharing out by round-robin or at random depends on nothing that happens, so a cell's part is
exactly what its targets would get in the whole fleet.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outrider.simulator.traces import Arrival, read_trace
from outrider.simulator.traffic_description import (
    Arrivals,
    Lengths,
    Routing,
    Stage,
    Stress,
    Traffic,
)

BLOCK_TOKENS = 512
"""Tokens of a block of a Mooncake trace."""
CHUNK = 4096
"""Random numbers drawn at once."""
LEAST_VARIATION = 1e-6
"""Least variation of lengths that differ: less is no token for a mean of a million."""
STRESS = {
    Stress.SPIKE: ((2, 30), (8, 40), (24, 80), (40, 120), (6, 40)),
    Stress.OSCILLATION: ((4, 30), (28, 30)) * 3,
    Stress.MIGRATION: ((6, 40), (36, 140), (36, 140), (3, 20), (30, 120)),
}
"""Requests a second, and requests, of each stage."""


def arrivals(traffic: Traffic, seed: int, folder: Path) -> Iterator[Arrival]:
    """Yield the arrivals of the whole service, by their time; raises `SpecError`.

    Without end, but for stages and traces. Nothing arrives where `concurrency` is given.
    """
    if traffic.trace is not None:
        trace = traffic.trace
        for one in read_trace(folder / trace.file, trace.format):
            yield Arrival(one.at / trace.speed, one.prompt, one.answer, one.blocks)
        return
    if traffic.concurrency is not None:
        return
    rng = np.random.default_rng([seed, 1])
    pairs = zip(
        lengths(traffic.prompt_tokens, np.random.default_rng([seed, 2])),
        lengths(traffic.answer_tokens, np.random.default_rng([seed, 3])),
        strict=True,
    )
    for at, (prompt, answer) in zip(moments(traffic, rng), pairs, strict=False):
        yield Arrival(at, prompt, answer)


def moments(traffic: Traffic, rng: np.random.Generator) -> Iterator[float]:
    """Yield moments of arrival in seconds, never decreasing."""
    stages = traffic.stages
    if traffic.stress is not None:
        scale = traffic.stress_scale
        stages = [
            Stage(rate=scale * rate, requests=max(1, round(scale * requests)))
            for rate, requests in STRESS[traffic.stress]
        ]
    if stages is not None:
        gaps = (g for s in stages for g in itertools.islice(_gaps(s.rate, rng), s.requests))
        yield from itertools.accumulate(gaps)
        return
    assert traffic.rate is not None
    match traffic.arrivals:
        case Arrivals.POISSON:
            yield from itertools.accumulate(_gaps(traffic.rate, rng))
        case Arrivals.CONSTANT:
            yield from (number / traffic.rate for number in itertools.count())
        case Arrivals.BURST:
            size = traffic.burst_size
            yield from (number // size * (size / traffic.rate) for number in itertools.count())


def _gaps(rate: float, rng: np.random.Generator) -> Iterator[float]:
    while True:
        yield from rng.exponential(1 / rate, CHUNK).tolist()


def lengths(distribution: Lengths, rng: np.random.Generator) -> Iterator[int]:
    """Yield numbers of tokens, at least one each, without end."""
    while True:
        drawn = _drawn(distribution, rng)
        yield from np.clip(np.rint(drawn), 1, distribution.most).astype(int).tolist()


def _drawn(distribution: Lengths, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the next numbers of a distribution, before they are cut."""
    mean, variation = distribution.mean, distribution.variation
    if mean is None:
        return rng.choice(np.array(distribution.values, np.float64), CHUNK)
    if variation < LEAST_VARIATION:
        return np.full(CHUNK, mean)
    return rng.gamma(variation**-2, mean * variation**2, CHUNK)


def shared_out(
    every: Iterator[Arrival], routing: Routing, targets: int, mine: range, seed: int
) -> Iterator[tuple[int, Arrival]]:
    """Yield the arrivals of the targets `mine`, of so many in all, and the target of each."""
    choices = _choices(routing, targets, np.random.default_rng([seed, 4]))
    for target, arrival in zip(choices, every, strict=False):
        if target in mine:
            yield target, arrival


def _choices(routing: Routing, targets: int, rng: np.random.Generator) -> Iterator[int]:
    if routing is Routing.ROUND_ROBIN:
        yield from itertools.cycle(range(targets))
    while True:
        yield from rng.integers(targets, size=CHUNK).tolist()


def prompt_of(
    arrival: Arrival, cell: int, number: int, vocabulary: int, seed: int
) -> NDArray[np.int32]:
    """Return int32[tokens] the prompt of a cell's request; equal blocks read alike."""
    own = np.random.default_rng([seed, 5, cell, number])
    prompt = own.integers(vocabulary, size=arrival.prompt, dtype=np.int32)
    for place, block in enumerate(arrival.blocks):
        begin = place * BLOCK_TOKENS
        part = prompt[begin : begin + BLOCK_TOKENS]
        if len(part) == 0:
            break
        shared = np.random.default_rng([seed, 6, block])
        part[:] = shared.integers(vocabulary, size=BLOCK_TOKENS, dtype=np.int32)[: len(part)]
    return prompt
