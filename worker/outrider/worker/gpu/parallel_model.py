"""Tensor parallelism of a model over devices: rank 0 leads, every rank launches its own part.

Step messages travel as between ranks on CPUs, over gloo; sums, logits and sampled tokens between
the devices. Leaves step messages to `outrider.worker.parallel`, a rank's part to `device_share`.
"""

import contextlib
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outrider.worker.gpu.device_share import DeviceSampled, DeviceShare, Span
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.rows import Rows
from outrider.worker.parallel.collectives import ProcessGroup
from outrider.worker.parallel.leader import RankLeader
from outrider.worker.parallel.step_message import DeviceSampleSpec, decode
from outrider.worker.parallel.watchdog import Watchdog

Floats = NDArray[np.float32]


class LeadingGpuModel(RankLeader):
    """A whole model, of which this process's device computes the first share."""

    def __init__(
        self,
        config: ModelConfig,
        own: DeviceShare,
        group: ProcessGroup,
        watchdog: Watchdog,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(config, own.model, group, watchdog, ended)
        self._own = own
        self.share, self.path, self.kv_cache = own.model, own.model.path, own.model.kv_cache
        copies, columns = own.model.copies, group.size * own.columns
        self._logits = copies.host(self.row_capacity, columns, dtype=torch.float32)
        copies.synchronize()

    def forward(self, rows: Rows) -> Floats:
        """Return logits [len(rows.outputs), config.outputs]; a view, valid until the next call.

        Raises `GroupLost` when not all ranks have run the pass: no other can follow it.
        """

        def work() -> Floats:
            whole = self._own.logits(rows)
            if whole is not None:
                self._fetch(whole)
                self._own.model.copies.wait()
            return self._host(len(rows.outputs))

        return self.lead(rows, None, work)

    def sample(self, rows: Rows, spec: DeviceSampleSpec, wanted: Sequence[Span]) -> DeviceSampled:
        """Sample after the rows with output, of which there must be some; raises as `forward`.

        `wanted`: spans with logits, where `spec` says that there are any.
        """

        def work() -> DeviceSampled:
            count = len(rows.outputs)
            self._own.launch(rows, spec)
            if spec.logits:
                self._fetch(self._own.side_by_side(count))
            tokens = self._own.fetch_ids(count)
            whole = self._host(count)[:, : spec.vocabulary]
            return DeviceSampled(tokens, {begin: whole[begin:end] for begin, end in wanted})

        return self.lead(rows, spec, work)

    def _fetch(self, whole: Tensor) -> None:
        self._own.model.copies.fetch(whole, self._logits[: len(whole)])

    def _host(self, count: int) -> Floats:
        logits: Floats = self._logits[:count, : self.config.outputs].numpy()
        return logits


def follow(share: DeviceShare, group: ProcessGroup) -> None:
    """Launch what step messages say, up to the last one; raises `GroupLost`."""
    while run_one(share, group):
        pass
    with contextlib.suppress(RuntimeError):
        share.model.close()


def run_one(share: DeviceShare, group: ProcessGroup) -> bool:
    """Receive one step message and launch its pass; False for the last."""
    message = decode(group.receive())
    for sources, destinations in message.moves:
        share.model.kv_cache.move_slots(sources, destinations)
    if message.rows is None:
        return False
    if isinstance(message.wanted, DeviceSampleSpec):
        share.launch(message.rows, message.wanted)
        if message.wanted.logits:
            share.side_by_side(len(message.rows.outputs))
    else:
        share.logits(message.rows)
    return True
