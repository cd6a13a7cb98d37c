"""A rank that follows: has its share of the weights and the KV cache, runs the leader's steps.

Leaves requests and sequences to the leader, and ends when that does.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.checkpoints.kept_weights import KeptWeights
from outrider.worker.checkpoints.load import CheckpointTensors
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.host.process import exit_with_parent, keep_to
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.layer_range import LayerRange
from outrider.worker.model.llama import Llama, PassOptions
from outrider.worker.model.sharding import Shard
from outrider.worker.parallel.collectives import ProcessGroup, join_store
from outrider.worker.parallel.processes import READY
from outrider.worker.parallel.rank_spec import RankSpec
from outrider.worker.parallel.shared_memory import RankMemory
from outrider.worker.parallel.step_message import ChildSpec, InitMessage, SampleSpec, decode
from outrider.worker.parallel.vocab_parallel import ChildScores, sample
from outrider.worker.parallel.watchdog import Watchdog

logger = logging.getLogger(__name__)


def main() -> int:
    """Run `python -m outrider.worker rank`: one rank, until its leader is gone.

    Raises `ModelError`, and `GroupLost` when the leader or another rank is gone.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the server decides
    spec = RankSpec.from_json(sys.stdin.readline())
    exit_with_parent(sys.stdin.fileno())
    keep_to(spec.processors)
    watchdog = Watchdog(give_up)
    with watchdog:
        store = join_store(spec.leader, spec.rendezvous.port, spec.size)
        group = ProcessGroup(store, spec.rank, spec.size, spec.rendezvous.host, memory_of(spec))
        run = rank_loop(spec, store, group)
    watchdog.close()
    run()
    return 0


def rank_loop(spec: RankSpec, store: Any, group: ProcessGroup) -> Callable[[], None]:
    """Return the function that runs this rank; wait for all devices if ranks have some.

    Loads triton for those alone. Raises `GroupLost`; the function raises as `main` does.
    """
    if spec.device is None:
        return partial(follow, spec.prepared, group, spec.threads, report_ready, spec.layers)
    from outrider.worker.gpu.device_group import join_device_group
    from outrider.worker.launch.gpu_rank_group import follow_on_device

    devices = join_device_group(store, spec.rank, spec.size, spec.device, spec.rendezvous.host)
    return partial(follow_on_device, spec.prepared, group, devices, report_ready)


def follow(
    prepared: PreparedModel,
    group: ProcessGroup,
    threads: int,
    ready: Callable[[], None],
    layers: LayerRange | None = None,
) -> None:
    """Load, call `ready`, then run passes until the leader says that it was the last.

    `layers` of a pipeline stage; None: all. Raises as `main` does.
    """
    config = prepared.config()
    layers = layers or LayerRange.whole(config)
    share = Shard(layers.config(config), group.rank, group.size)
    weights = CheckpointTensors(prepared, share.cut, lambda name: layers.holds(name, config))
    init = InitMessage.decode(group.receive())
    kv_cache = HostKVCache(share.config.kv_shape, init.blocks, init.longest, prefix_cache=False)
    pack = KeptWeights(prepared, share).packed
    options = PassOptions(threads, first_token=share.first_token, layers=layers, pack=pack)
    path = NumericPath(init.path)
    model = Llama(share.config, weights, path, kv_cache, init.rows, options)
    del weights
    logger.info("rank %d of %d holds its share of %s", group.rank, group.size, prepared.name)
    ready()
    child_scores = ChildScores(config.output_ids, group.rank, share.config.outputs)
    while run_one(model, group, child_scores):
        pass
    model.close()


def memory_of(spec: RankSpec) -> RankMemory | None:
    """Map the memory that the ranks of one machine share; None if they have none."""
    if spec.rendezvous.memory is None:
        return None
    return RankMemory.of(spec.rendezvous.memory, spec.rank, spec.size)


def report_ready() -> None:
    """Tell the process that started this one."""
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()


def give_up(reason: str) -> None:
    """Exit because the other ranks have not come."""
    logger.error("%s: not all ranks have met", reason)
    os._exit(1)


def run_one(model: Llama, group: ProcessGroup, child_scores: ChildScores) -> bool:
    """Receive and run one step; return False for the last."""
    step = decode(group.receive())
    for sources, destinations in step.moves:
        model.kv_cache.move_slots(sources, destinations)
    if step.rows is None:
        return False
    logits = group.run(model, step.rows, step.hidden)
    if len(logits) == 0 or not model.layers.has_head:
        return True
    match step.wanted:
        case SampleSpec():
            sample(group, logits, model.config.outputs, step.rows, step.wanted)
        case ChildSpec():
            child_scores.score(group, logits, step.rows, step.wanted)
        case _:
            group.gather(logits)
    return True
