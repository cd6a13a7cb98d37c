"""One rank's share of a model and of sampling, alike in the leader and the others; a model on one
device is its only share.

Head and sampling are one graph, and the host sees token ids alone, unless logits are wanted. Leaves
the pass to `model`, sampling to `outrider.kernels.gpu.sampling`.
"""

import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outrider.kernels.gpu.sampling import sample
from outrider.kernels.gpu.sampling_inputs import VocabularyShard
from outrider.worker.gpu.device_group import DeviceGroup
from outrider.worker.gpu.input_buffers import InputShape
from outrider.worker.gpu.input_layout import sampling_inputs
from outrider.worker.gpu.model import GpuModel
from outrider.worker.model.rows import Rows
from outrider.worker.parallel.step_message import DeviceSampleSpec

READ_TOGETHER = 4
"""Columns that the sampling kernel reads at once."""
Span = tuple[int, int]
"""First output, and the one after the last."""


class SampleVariant(enum.Enum):
    """Work of a launch of sampling; each is a graph of its own."""

    GREEDY = enum.auto()
    """No row has settings that sampling reads."""
    SAMPLED = enum.auto()
    """Some row has a temperature, min-p included."""
    FILTERED = enum.auto()
    """Some row with a temperature has top-k or top-p."""


class DeviceSampled(NamedTuple):
    """Results of a pass on the host."""

    tokens: NDArray[np.int32]  # [outputs]
    logits: Mapping[int, NDArray[np.float32]]
    """Logits of each span that was wanted, by its first output: [outputs, columns]."""


class DeviceShare:
    """A model, or one rank's share of it, whose passes are sampled where their logits are."""

    def __init__(self, model: GpuModel, group: DeviceGroup | None = None) -> None:
        """`group`: None, the model is whole."""
        self.model = model
        self.columns = model.config.outputs
        self._shard = None if group is None else VocabularyShard(group.rank, group.gather)
        self._tokens = torch.zeros(model.row_capacity, dtype=torch.int32, device=model.device)
        self._logprobs = torch.zeros(model.row_capacity, dtype=torch.float32, device=model.device)
        self._ids = model.copies.host(model.row_capacity, dtype=torch.int32)
        self._fetched: NDArray[np.int32] = self._ids.numpy()
        model.copies.synchronize()

    def logits(self, rows: Rows) -> Tensor | None:
        """Run a pass and return all ranks' logits [outputs, ranks * columns]; None without any."""
        shape = self.model.launch(rows)
        self.model.head(shape)
        return self.side_by_side(len(rows.outputs)) if shape.outputs else None

    def launch(self, rows: Rows, spec: DeviceSampleSpec) -> None:
        """Launch a pass and its sampling, whose tokens come to every rank."""
        variant = SampleVariant(spec.variant)
        settings = None if variant is SampleVariant.GREEDY else spec.each
        shape = self.model.launch(rows, settings)
        with self.model.copies.computing():
            key = (self, shape.outputs, variant, spec.vocabulary)  # with buffers of its own
            self.model.graphs.run(key, lambda: self._sample(shape, variant, spec.vocabulary))

    def sample(self, rows: Rows, spec: DeviceSampleSpec, wanted: Sequence[Span]) -> DeviceSampled:
        """Sample after the rows with output of a whole model; `wanted`: spans with logits."""
        self.launch(rows, spec)
        logits = {
            begin: self.model.fetch_logits(begin, end)[:, : spec.vocabulary]
            for begin, end in wanted
        }
        return DeviceSampled(self.fetch_ids(len(rows.outputs)), logits)

    def fetch_ids(self, count: int) -> NDArray[np.int32]:
        """Wait for the first tokens, and for all that was fetched before."""
        copies = self.model.copies
        copies.fetch(self._tokens, self._ids)
        copies.wait()
        return self._fetched[:count].copy()

    def side_by_side(self, count: int) -> Tensor:
        """Gather the logits of the last pass over all ranks: [count, ranks * columns]."""
        assert self._shard is not None
        with self.model.copies.computing():
            parts = self._shard.gather(self.model.logits[:count, : self.columns])
            return parts.transpose(0, 1).reshape(count, -1)

    def _sample(self, shape: InputShape, variant: SampleVariant, vocabulary: int) -> None:
        """Sample tokens of the first outputs."""
        m, shard, columns = shape.outputs, self._shard or VocabularyShard(), self.columns
        if self._shard is None:
            columns = -(-vocabulary // READ_TOGETHER) * READ_TOGETHER
        self.model.forward_pass.head(m)
        logits = self.model.logits[:m]
        real = min(columns, max(0, vocabulary - shard.rank * columns))
        logits[:, real:columns].fill_(-torch.inf)
        sampled, filtered = variant is not SampleVariant.GREEDY, variant is SampleVariant.FILTERED
        fields = self.model.inputs.device
        inputs = sampling_inputs(fields, m, sampled=sampled, filtered=filtered)
        sample(logits, columns, inputs, self._tokens[:m], self._logprobs[:m], shard)
