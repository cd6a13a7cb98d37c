"""A rank that follows: holds its share of the weights and the KV, runs what it is told to.

Knows no requests, no sequences and no clock: it ends when its leader does.
"""

import logging

from outrider.kernels.linear import Path
from outrider.worker.kv_pool import KVPool
from outrider.worker.model.llama import Llama
from outrider.worker.model.load import load_part
from outrider.worker.model.prepared import PreparedModel
from outrider.worker.model.sharding import Shard
from outrider.worker.ranks.group import Group
from outrider.worker.ranks.orders import decode
from outrider.worker.ranks.setup import Setup

logger = logging.getLogger(__name__)


def follow(prepared: PreparedModel, group: Group, threads: int) -> None:
    """Loads, then runs passes until the leader says that it was the last.

    Raises `ModelError`, and `GroupLost` when the leader or another rank is gone.
    """
    share = Shard(prepared.config(), group.rank, group.size)
    weights = load_part(prepared, share.cut)
    setup = Setup.decode(group.hear())
    pool = KVPool(share.config, setup.blocks, setup.longest, prefix_cache=False)
    model = Llama(
        share.config, weights, Path(setup.path), pool, setup.rows, threads,
        first_token=share.first_token,
    )  # fmt: skip
    del weights
    logger.info("rank %d of %d holds its share of %s", group.rank, group.size, prepared.name)
    while run_one(model, group):
        pass
    model.close()


def run_one(model: Llama, group: Group) -> bool:
    """Hears and runs one order; False for the last."""
    order = decode(group.hear())
    for sources, destinations in order.moves:
        model.pool.move_slots(sources, destinations)
    if order.rows is None:
        return False
    logits = model.forward_part(order.rows, group.add)
    if len(logits):
        group.gather(logits)
    return True
