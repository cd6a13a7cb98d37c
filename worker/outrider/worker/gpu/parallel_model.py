"""Tensor parallelism of a model over devices: rank 0 leads, every rank launches its own part.

Step messages travel as between ranks on CPUs, over gloo; sums, logits and sampled tokens between
the devices. Leaves step messages to `outrider.worker.parallel`, a pass to `model`.
"""

import contextlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outrider.kernels.gpu.sampling import sample
from outrider.kernels.gpu.sampling_inputs import VocabularyShard
from outrider.worker.gpu.device_group import DeviceGroup
from outrider.worker.gpu.input_buffers import InputShape, SamplingColumns
from outrider.worker.gpu.kv_cache import DeviceKVCache
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.target_runner import SampleVariant
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.rows import Rows
from outrider.worker.parallel.collectives import ProcessGroup
from outrider.worker.parallel.leader import Leader
from outrider.worker.parallel.step_message import DEVICE_SAMPLE_FIELDS, DeviceSampleSpec, decode
from outrider.worker.parallel.watchdog import Watchdog

Floats = NDArray[np.float32]


class DeviceShare:
    """One rank's share of a model and of sampling, the same in the leader and the others."""

    def __init__(self, model: GpuModel, group: DeviceGroup) -> None:
        self.model = model
        self.columns = model.config.outputs
        self.tokens = torch.zeros(model.row_capacity, dtype=torch.int32, device=model.device)
        self._logprobs = torch.zeros(model.row_capacity, dtype=torch.float32, device=model.device)
        self._shard = VocabularyShard(group.rank, group.gather)
        model.copies.synchronize()

    @property
    def kv_cache(self) -> DeviceKVCache:
        """Keys and values of this rank's heads."""
        return self.model.kv_cache

    @property
    def row_capacity(self) -> int:
        """Most rows of a pass."""
        return self.model.row_capacity

    def close(self) -> None:
        """End nothing: memory goes with the object."""
        self.model.close()

    def logits(self, rows: Rows) -> Tensor | None:
        """Run a pass and return all ranks' logits [outputs, ranks * columns]; None without any."""
        shape = self.model.launch(rows)
        self.model.head(shape)
        return self._side_by_side(len(rows.outputs)) if shape.outputs else None

    def sample(self, rows: Rows, wanted: DeviceSampleSpec) -> Tensor | None:
        """Run a pass whose tokens come to `tokens` at every rank; return logits if wanted."""
        columns = SamplingColumns(*(wanted.each[name].copy() for name in SamplingColumns.__slots__))
        shape, variant = self.model.launch(rows, columns), SampleVariant(wanted.variant)
        with self.model.copies.computing():
            key = (self, shape.outputs, variant, wanted.vocabulary)
            self.model.graphs.run(key, lambda: self._sample(shape, variant, wanted.vocabulary))
        return self._side_by_side(len(rows.outputs)) if wanted.logits else None

    def _sample(self, shape: InputShape, variant: SampleVariant, vocabulary: int) -> None:
        m, columns = shape.outputs, self.columns
        self.model.forward_pass.head(m)
        logits = self.model.logits[:m]
        real = min(columns, max(0, vocabulary - self._shard.rank * columns))
        logits[:, real:columns].fill_(-torch.inf)
        inputs = self.model.inputs.sampling_inputs(
            m,
            sampled=variant is not SampleVariant.GREEDY,
            filtered=variant is SampleVariant.FILTERED,
        )
        tokens, logprobs = self.tokens[:m], self._logprobs[:m]
        sample(logits, columns, inputs, tokens, logprobs, self._shard)

    def _side_by_side(self, count: int) -> Tensor:
        with self.model.copies.computing():
            parts = self._shard.gather(self.model.logits[:count, : self.columns])
            return parts.transpose(0, 1).reshape(count, -1)


class DeviceSampled(NamedTuple):
    """Results of a pass on the leader's host."""

    tokens: NDArray[np.int32]  # [outputs]
    logits: Floats  # [outputs, the model's columns]; without rows if they are not wanted


class LeadingGpuModel(Leader):
    """A whole model, of which this process's device computes the first share."""

    def __init__(
        self,
        config: ModelConfig,
        own: DeviceShare,
        group: ProcessGroup,
        watchdog: Watchdog,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(config, own, group, watchdog, ended)
        self._own = own
        copies, columns = own.model.copies, group.size * own.columns
        self._ids = copies.host(own.row_capacity, dtype=torch.int32)
        self._logits = copies.host(own.row_capacity, columns, dtype=torch.float32)
        copies.synchronize()

    @property
    def path(self) -> str:
        """Format of the weights."""
        return self._own.model.path

    @property
    def share(self) -> GpuModel:
        """This rank's own share."""
        return self._own.model

    @property
    def kv_cache(self) -> DeviceKVCache:
        """Keys and values of this rank's heads; blocks of all."""
        return self._own.kv_cache

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

    def sample(self, rows: Rows, wanted: DeviceSampleSpec) -> DeviceSampled:
        """Sample after the rows with output, of which there must be some; raises as `forward`."""

        def work() -> DeviceSampled:
            count, copies = len(rows.outputs), self._own.model.copies
            whole = self._own.sample(rows, wanted)
            copies.fetch(self._own.tokens[:count], self._ids[:count])
            if whole is not None:
                self._fetch(whole)
            copies.wait()
            tokens: NDArray[np.int32] = self._ids[:count].numpy().copy()
            return DeviceSampled(tokens, self._host(0 if whole is None else count))

        return self.lead(rows, wanted, work)

    def _fetch(self, whole: Tensor) -> None:
        self._own.model.copies.fetch(whole, self._logits[: len(whole)])

    def _host(self, count: int) -> Floats:
        logits: Floats = self._logits[:count, : self.config.outputs].numpy()
        return logits


def records(columns: SamplingColumns) -> NDArray[np.void]:
    """Return sampling settings as a step message holds them."""
    each = np.empty(len(columns.temperature), DEVICE_SAMPLE_FIELDS)
    for name in SamplingColumns.__slots__:
        each[name] = getattr(columns, name)
    return each


def follow(share: DeviceShare, group: ProcessGroup) -> None:
    """Launch what step messages say, up to the last one; raises `GroupLost`."""
    while run_one(share, group):
        pass
    with contextlib.suppress(RuntimeError):
        share.close()


def run_one(share: DeviceShare, group: ProcessGroup) -> bool:
    """Receive one step message and launch its pass; False for the last."""
    message = decode(group.receive())
    for sources, destinations in message.moves:
        share.kv_cache.move_slots(sources, destinations)
    if message.rows is None:
        return False
    if isinstance(message.wanted, DeviceSampleSpec):
        share.sample(message.rows, message.wanted)
    else:
        share.logits(message.rows)
    return True
