"""Rank group of a model: rank 0 opens the store where ranks meet, and starts those of its machine.

A group lives and dies as one: when a rank is gone or a pass never ends, this process ends at once
with those that it started, and the supervisor of the worker starts all of them again. Leaves what
ranks run to `parallel.leader` and `follower`.
"""

import logging
import os
import threading

from outrider.contract.settings import WorkerSettings
from outrider.kernels.cpu.packing import BLOCK, padded
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.errors import ModelError
from outrider.worker.host.rendezvous import open_store
from outrider.worker.model.layer_range import LayerRange
from outrider.worker.model.llama import Llama
from outrider.worker.parallel.collectives import JOIN_SECONDS, ProcessGroup
from outrider.worker.parallel.leader import LeadingModel
from outrider.worker.parallel.placement import LEADER, RankPlacement
from outrider.worker.parallel.processes import Followers
from outrider.worker.parallel.rank_spec import GROUP_LOST, Rendezvous, rank_specs
from outrider.worker.parallel.shared_memory import RankMemory, create
from outrider.worker.parallel.step_message import InitMessage
from outrider.worker.parallel.watchdog import Watchdog

logger = logging.getLogger(__name__)


class RankGroup:
    """The ranks of one model, from the first process's start to the last one's end."""

    def __init__(
        self,
        settings: WorkerSettings,
        prepared: PreparedModel,
        placement: RankPlacement,
        rows: int,
        device: str | None = None,
        layers: LayerRange | None = None,
    ) -> None:
        """Start the other ranks of this machine, for passes of up to `rows` rows.

        They load while the caller does. `device`: this rank's, if each has one; `layers` of the
        pipeline stage that they share, None: all. Raises `ModelError`
        when the model cannot be cut so, when there are too few devices or no store can be opened,
        and `GroupLost` if this machine does not find its own name.
        """
        self._config = prepared.config()
        self._size = size = settings.tensor_parallel
        if size > self._config.heads:
            raise ModelError(
                f"settings.tensor_parallel: {size} is not allowed; {prepared.name} has "
                f"{self._config.heads} attention heads, and each rank needs one"
            )
        self._ending = threading.Lock()
        self._own_ranks = placement.ranks(size)
        try:
            self.store, port = open_store(*placement.listen, size, JOIN_SECONDS)
        except OSError as error:
            raise ModelError(f"the ranks have nowhere to meet: {error}") from error
        self.host = placement.own_address()
        """Address of this machine, as the other ranks reach it."""
        floats = rows * padded(self._config.hidden, BLOCK)
        memory = create(size, floats) if placement.nodes == 1 and device is None else None
        rendezvous = Rendezvous(self.host, port, memory)
        specs = rank_specs(settings, prepared, placement, rendezvous, device, layers)
        self._memory = None if memory is None else RankMemory.of(memory, LEADER, size)
        self.followers = Followers([s for s in specs if s.rank != LEADER], self._exit)
        if memory is not None:
            os.close(memory)  # it stays mapped
        self.watchdog = Watchdog(self.end)

    def meet(self) -> ProcessGroup:
        """Wait for the others; raises `GroupLost`."""
        with self.watchdog:
            group = ProcessGroup(self.store, LEADER, self._size, self.host, self._memory)
        for rank in range(self._own_ranks.stop, self._size):
            threading.Thread(target=self._watch, args=(group, rank), daemon=True).start()
        return group

    def lead(self, own: Llama, init: InitMessage) -> LeadingModel:
        """Wait for the others, send them `init`, return the whole model. Raises `GroupLost`."""
        group = self.meet()
        group.broadcast(init.encode())
        return LeadingModel(self._config, own, group, self.watchdog, self.followers.close)

    def end(self, reason: str) -> None:
        """End this process and those that it has started."""
        self.followers.kill()
        self._exit(reason)

    def _exit(self, reason: str) -> None:
        if self._ending.acquire(blocking=False):
            logger.error("%s: this group of %d ranks ends", reason, self._size)
            logging.shutdown()
            os._exit(GROUP_LOST)

    def _watch(self, group: ProcessGroup, rank: int) -> None:
        """Watch the connection of a rank on another machine."""
        group.wait_until_gone(rank)
        if not self.followers.closing:
            self.end(f"rank {rank} is gone")
