"""Ranks of one model as threads of one process, over real gloo on loopback.

with shared_model(folder, degree=3) as model:
    model.forward(rows)
"""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from torch.distributed import HashStore

from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.kernels.cpu.packing import BLOCK, padded
from outrider.worker.checkpoints.load import load_part
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.launch.follower import follow
from outrider.worker.model.layer_range import LayerRange
from outrider.worker.model.llama import Llama, PassOptions
from outrider.worker.model.sharding import Shard
from outrider.worker.parallel.collectives import ProcessGroup
from outrider.worker.parallel.leader import LeadingModel
from outrider.worker.parallel.shared_memory import RankMemory, size_of
from outrider.worker.parallel.step_message import InitMessage
from outrider.worker.parallel.watchdog import Watchdog

LOOPBACK = "127.0.0.1"
BLOCKS, LONGEST, ROWS = 6, 192, 64


@contextlib.contextmanager
def shared_model(
    folder: Path,
    degree: int,
    path: NumericPath = NumericPath.FP32,
    threads: int = 1,
    memory: bool = True,
    layers: LayerRange | None = None,
) -> Iterator[LeadingModel]:
    """A model whose other ranks are threads; they end with the block.

    `memory`: they add up in memory that they share, as on one machine, rather than over gloo.
    `layers` of a pipeline stage; None: all.
    """
    prepared = PreparedModel("tiny", folder, folder, folder, "0" * 64, None)
    store = HashStore()
    failures: list[BaseException] = []
    floats = ROWS * padded(prepared.config().hidden, BLOCK)
    buffer = bytearray(size_of(degree, floats))

    def group_of(rank: int) -> ProcessGroup:
        shared = RankMemory(buffer, rank, degree) if memory else None
        return ProcessGroup(store, rank, degree, LOOPBACK, shared)

    def follower(rank: int) -> None:
        try:
            follow(prepared, group_of(rank), threads, lambda: None, layers)
        except BaseException as error:
            failures.append(error)

    ranks = [threading.Thread(target=follower, args=(rank,)) for rank in range(1, degree)]
    for thread in ranks:
        thread.start()
    whole = prepared.config()
    held = layers or LayerRange.whole(whole)
    share = Shard(held.config(whole), 0, degree)
    weights = load_part(prepared, share.cut, lambda name: held.holds(name, whole))
    group = group_of(0)
    group.broadcast(InitMessage(path, BLOCKS, LONGEST, ROWS).encode())
    kv_cache = HostKVCache(share.config.kv_shape, BLOCKS, LONGEST)
    own = Llama(share.config, weights, path, kv_cache, ROWS, PassOptions(threads, layers=held))
    model = LeadingModel(whole, own, group, Watchdog(lambda what: None))
    try:
        yield model
    finally:
        model.close()
        for thread in ranks:
            thread.join(60)
        assert not failures, failures
