"""Ranks with a device each share one model: who leads says what runs, every rank launches its part.

Orders travel as between ranks on CPUs, over gloo; sums, logits and draws between the devices, over
NCCL or by `all_reduce`'s other ways. Leaves orders to `outrider.worker.ranks`, a pass to `model`.
"""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from outrider.kernels.gpu.sampling import sample
from outrider.kernels.gpu.sampling_inputs import Gather
from outrider.worker.errors import GroupLost
from outrider.worker.gpu.input_buffers import Drawing, InputShape
from outrider.worker.gpu.kv_cache import DeviceKVCache
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.target_runner import SampleVariant
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.rows import Rows
from outrider.worker.parallel.collectives import FOR_EVER, ProcessGroup
from outrider.worker.parallel.leader import Leader
from outrider.worker.parallel.step_message import DEVICE_SAMPLE_FIELDS, DeviceSampleSpec, decode
from outrider.worker.parallel.watchdog import Watchdog

Floats = NDArray[np.float32]
prefix_store: Any = dist.PrefixStore  # type: ignore[attr-defined] # named by a star import


def device_group(store: Any, rank: int, size: int, device: str, host: str) -> Any:
    """Where tensors on the ranks' devices travel: NCCL, or gloo of CPU tensors.

    Raises `GroupLost` if the others do not come. `host` is this rank's own address.
    """
    apart = prefix_store("devices", store)
    try:
        if device.startswith("cuda"):
            torch.cuda.set_device(device)
            nccl: Any = dist.ProcessGroupNCCL
            return nccl(apart, rank, size, nccl.Options())
        gloo: Any = dist.ProcessGroupGloo
        options = gloo._Options()
        options._devices = [gloo.create_device(hostname=host)]
        options._timeout = FOR_EVER
        options._threads = 1
        return gloo(apart, rank, size, options)
    except RuntimeError as error:
        raise GroupLost(f"rank {rank} of {size} met nobody: {error}") from error


class DeviceShare:
    """One rank's share of a model and of its draws: what the leader and the others do alike."""

    def __init__(self, model: GpuModel, rank: int, gather: Gather) -> None:
        """`gather`: over all ranks' devices."""
        self.model = model
        self.columns = model.config.outputs
        self.tokens = torch.zeros(model.row_capacity, dtype=torch.int32, device=model.device)
        self._logprobs = torch.zeros(model.row_capacity, dtype=torch.float32, device=model.device)
        self._rank = rank
        self._gather = gather
        model.copies.begin()

    @property
    def kv_cache(self) -> DeviceKVCache:
        """Keys and values of this rank's heads."""
        return self.model.kv_cache

    @property
    def row_capacity(self) -> int:
        """Most rows of a pass."""
        return self.model.row_capacity

    def close(self) -> None:
        """Memory goes with the object."""
        self.model.close()

    def logits(self, rows: Rows) -> Tensor | None:
        """A pass; all ranks' logits [outputs, ranks * columns], or None without outputs."""
        shape = self.model.launch(rows)
        self.model.head(shape)
        return self._side_by_side(len(rows.outputs)) if shape.outputs else None

    def draw(self, rows: Rows, wanted: DeviceSampleSpec) -> Tensor | None:
        """A pass whose tokens come to `tokens` at every rank; the logits too if they are wanted."""
        drawing = Drawing(*(wanted.each[name].copy() for name in Drawing.__slots__))
        shape, variant = self.model.launch(rows, drawing), SampleVariant(wanted.variant)
        with self.model.copies.computing():
            key = (self, shape.outputs, variant, wanted.vocabulary)
            self.model.graphs.run(key, lambda: self._draw(shape, variant, wanted.vocabulary))
        return self._side_by_side(len(rows.outputs)) if wanted.logits else None

    def _draw(self, shape: InputShape, variant: SampleVariant, vocabulary: int) -> None:
        m, columns = shape.outputs, self.columns
        self.model.forward_pass.head(m)
        logits = self.model.logits[:m]
        real = min(columns, max(0, vocabulary - self._rank * columns))
        logits[:, real:columns].fill_(-torch.inf)
        draws = self.model.inputs.draws(
            m,
            sampled=variant is not SampleVariant.GREEDY,
            filtered=variant is SampleVariant.FILTERED,
        )
        tokens, logprobs = self.tokens[:m], self._logprobs[:m]
        sample(logits, columns, draws, tokens, logprobs, self._rank, self._gather)

    def _side_by_side(self, count: int) -> Tensor:
        with self.model.copies.computing():
            parts = self._gather(self.model.logits[:count, : self.columns])
            return parts.transpose(0, 1).reshape(count, -1)


class DeviceSampled(NamedTuple):
    """What a pass brought to the leader's host."""

    tokens: NDArray[np.int32]  # [outputs]
    logits: Floats  # [outputs, the model's columns]; without rows if nobody wanted them


class LeadingGpuModel(Leader):
    """A whole model, of which this process's device computes the first share."""

    def __init__(
        self,
        config: ModelConfig,
        own: DeviceShare,
        group: ProcessGroup,
        deadline: Watchdog,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """As `LeadingModel`."""
        super().__init__(config, own, group, deadline, ended)
        self._own = own
        copies, columns = own.model.copies, group.size * own.columns
        self._ids = copies.host(own.row_capacity, dtype=torch.int32)
        self._logits = copies.host(own.row_capacity, columns, dtype=torch.float32)
        copies.begin()

    @property
    def path(self) -> str:
        """How weights are held."""
        return self._own.model.path

    @property
    def share(self) -> GpuModel:
        """What this rank's device holds."""
        return self._own.model

    @property
    def kv_cache(self) -> DeviceKVCache:
        """Keys and values of this rank's heads; blocks of all."""
        return self._own.kv_cache

    def forward(self, rows: Rows) -> Floats:
        """Logits [len(rows.outputs), config.outputs]; a view, valid until the next call.

        Raises `GroupLost` when not all ranks have run the pass: no other can follow it.
        """

        def work() -> Floats:
            whole = self._own.logits(rows)
            if whole is not None:
                self._fetch(whole)
                self._own.model.copies.wait()
            return self._host(len(rows.outputs))

        return self.lead(rows, None, work)

    def draw(self, rows: Rows, wanted: DeviceSampleSpec) -> DeviceSampled:
        """Tokens after the rows with output, of which there must be some; raises as `forward`."""

        def work() -> DeviceSampled:
            count, copies = len(rows.outputs), self._own.model.copies
            whole = self._own.draw(rows, wanted)
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


def records(drawing: Drawing) -> NDArray[np.void]:
    """A drawing as an order holds it."""
    each = np.empty(len(drawing.temperature), DEVICE_SAMPLE_FIELDS)
    for name in Drawing.__slots__:
        each[name] = getattr(drawing, name)
    return each


def follow(share: DeviceShare, group: ProcessGroup) -> None:
    """Launches what the leader says until it says that it was the last; raises `GroupLost`."""
    while run_one(share, group):
        pass
    with contextlib.suppress(RuntimeError):
        share.close()


def run_one(share: DeviceShare, group: ProcessGroup) -> bool:
    """Hears and launches one order; False for the last."""
    order = decode(group.hear())
    for sources, destinations in order.moves:
        share.kv_cache.move_slots(sources, destinations)
    if order.rows is None:
        return False
    if isinstance(order.wanted, DeviceSampleSpec):
        share.draw(order.rows, order.wanted)
    else:
        share.logits(order.rows)
    return True
