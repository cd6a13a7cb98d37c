"""Launches on a GPU timed as a decode step runs them: in a CUDA graph, on tensors no cache holds.

A graph runs copies of a launch that together are four times the L2 cache, so each finds its weights
in memory, as a layer does in a step. Leaves what is launched to the cases.
"""

import math
from collections.abc import Callable, Sequence

import torch

from bench.gpu.cases.kernel_case import Launch
from bench.record.report import Spread, median_and_range

CACHES = 4
"""Sizes of the L2 cache that the copies take together."""
MIN_LAUNCHES = 20
"""Fewest launches of a graph; a replay's own cost is shared by them."""
MAX_COPIES = 64
REPLAYS = 15


def copies(size: float) -> int:
    """Copies of a launch that reads `size` bytes."""
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    return max(1, min(MAX_COPIES, math.ceil(CACHES * cache / size)))


def timed(make: Callable[[], Launch], size: float) -> Spread:
    """Return microseconds of one launch that moves `size` bytes."""
    return microseconds(make, copies(size))


def microseconds(make: Callable[[], Launch], count: int) -> Spread:
    """Of one launch, over REPLAYS replays of a graph of `count` copies."""
    launches = [make() for _ in range(count)]
    _warm(launches)
    graph = torch.cuda.CUDAGraph()
    rounds = math.ceil(MIN_LAUNCHES / count)
    with torch.cuda.graph(graph):
        for _ in range(rounds):
            for launch in launches:
                launch()
    graph.replay()
    times = [_replayed(graph) / (rounds * count) for _ in range(REPLAYS)]
    return median_and_range(times)


def _warm(launches: Sequence[Launch]) -> None:
    """Compile and let libraries choose, on a side stream as graphs ask."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for launch in launches:
            launch()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()


def _replayed(graph: torch.cuda.CUDAGraph) -> float:
    """Return microseconds of one replay."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e3


def copy_bandwidth() -> float:
    """Bytes a second that a copy of 2 GiB within the device reads and writes, best of ten."""
    source = torch.empty(2**31, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    best = math.inf
    for _ in range(10):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end) / 1e3)
    return 2 * source.numel() / best
