"""CUDA graphs of work of a fixed shape, captured once and replayed; without a device it is called.

What is captured reads and writes buffers that live as long as the model; its key says everything
about its launches that is no content of a buffer. Leaves streams to `transfers`.
"""

from collections.abc import Callable, Hashable

import torch

Work = Callable[[], None]


class CudaGraphs:
    """Work without graphs: it is called."""

    captures = False
    """True if the first time takes longer than others."""

    def run(self, key: Hashable, work: Work) -> None:
        """Run `work`, which does the same whenever it comes with the same key."""
        work()


class CapturedGraphs(CudaGraphs):
    """Graphs of a CUDA device, captured when a key first comes.

    The first time, work is called as it is, which compiles its kernels and loads them: neither may
    happen during a capture. All graphs share a memory pool, for they run one after the other on
    one stream, and nothing that they allocate is read after they end. What a key holds lives as
    long as its graph.
    """

    captures = True

    def __init__(self) -> None:
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self._memory = torch.cuda.graph_pool_handle()

    def run(self, key: Hashable, work: Work) -> None:
        """Run `work` on the current stream, which must not be the default one."""
        graph = self._graphs.get(key)
        if graph is not None:
            graph.replay()
            return
        work()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(
            graph,
            pool=self._memory,
            stream=torch.cuda.current_stream(),
            capture_error_mode="thread_local",
        ):
            work()
        self._graphs[key] = graph


def graphs_for(device: str) -> CudaGraphs:
    """Return graphs where the device has them."""
    return CapturedGraphs() if device.startswith("cuda") else CudaGraphs()
