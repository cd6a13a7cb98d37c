"""A rank that follows: holds its share of the weights and the KV, runs what it is told to.

Knows no requests, no sequences and no clock: it ends when its leader does.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from outrider.kernels.cpu.linear import NumericPath
from outrider.worker.host import parent_watch
from outrider.worker.host.processors import keep_to
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.llama import Llama
from outrider.worker.model.load import load_part
from outrider.worker.model.prepared import PreparedModel
from outrider.worker.model.sharding import Shard
from outrider.worker.parallel.collectives import ProcessGroup, join_store
from outrider.worker.parallel.init_message import InitMessage
from outrider.worker.parallel.processes import READY
from outrider.worker.parallel.rank_spec import RankSpec
from outrider.worker.parallel.sample import draw
from outrider.worker.parallel.score import Columns
from outrider.worker.parallel.shared_memory import SharedMemory
from outrider.worker.parallel.step_message import ChildSpec, SampleSpec, decode
from outrider.worker.parallel.watchdog import Watchdog

logger = logging.getLogger(__name__)


def main() -> int:
    """`python -m outrider.worker rank`: one rank, until its leader is gone.

    Raises `ModelError`, and `GroupLost` when the leader or another rank is gone.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the server decides
    work = RankSpec.from_json(sys.stdin.readline())
    parent_watch.hold(sys.stdin.fileno())
    keep_to(work.processors)
    deadline = Watchdog(give_up)
    with deadline:
        store = join_store(work.leader, work.port, work.size)
        group = ProcessGroup(store, work.rank, work.size, work.host, memory_of(work))
        run = joined(work, store, group)
    deadline.close()
    run()
    return 0


def joined(work: RankSpec, store: Any, group: ProcessGroup) -> Callable[[], None]:
    """What this rank does from now on; waits for all devices if ranks have some.

    Loads triton for those alone. Raises `GroupLost`, and what it returns raises as `main` does.
    """
    if work.device is None:
        return partial(follow, work.prepared, group, work.threads, say_ready)
    from outrider.worker.launch.gpu_rank_group import follow_on_device, gather_between

    gather = gather_between(store, work.rank, work.size, work.device, work.host)
    return partial(follow_on_device, work.prepared, group, gather, work.device, say_ready)


def follow(
    prepared: PreparedModel, group: ProcessGroup, threads: int, ready: Callable[[], None]
) -> None:
    """Loads, calls `ready`, then runs passes until the leader says that it was the last.

    Raises as `main` does.
    """
    share = Shard(prepared.config(), group.rank, group.size)
    weights = load_part(prepared, share.cut)
    setup = InitMessage.decode(group.hear())
    kv_cache = HostKVCache(share.config.kv_shape, setup.blocks, setup.longest, prefix_cache=False)
    model = Llama(
        share.config, weights, NumericPath(setup.path), kv_cache, setup.rows, threads,
        first_token=share.first_token,
    )  # fmt: skip
    del weights
    logger.info("rank %d of %d holds its share of %s", group.rank, group.size, prepared.name)
    ready()
    columns = Columns(prepared.config().output_ids, group.rank, share.config.outputs)
    while run_one(model, group, columns):
        pass
    model.close()


def memory_of(work: RankSpec) -> SharedMemory | None:
    """What ranks of one machine share."""
    if work.memory is None:
        return None
    return SharedMemory.of(work.memory, work.rank, work.size)


def say_ready() -> None:
    """To whoever started this process."""
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()


def give_up(reason: str) -> None:
    """The others have not come: whoever started this process starts again."""
    logger.error("%s: not all ranks have met", reason)
    os._exit(1)


def run_one(model: Llama, group: ProcessGroup, columns: Columns) -> bool:
    """Hears and runs one order; False for the last."""
    order = decode(group.hear())
    for sources, destinations in order.moves:
        model.kv_cache.move_slots(sources, destinations)
    if order.rows is None:
        return False
    logits = group.run(model, order.rows)
    if len(logits) == 0:
        return True
    match order.wanted:
        case SampleSpec():
            draw(group, logits, model.config.outputs, order.rows, order.wanted)
        case ChildSpec():
            columns.score(group, logits, order.rows, order.wanted)
        case _:
            group.gather(logits)
    return True
