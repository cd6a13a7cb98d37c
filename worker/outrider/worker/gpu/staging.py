"""Named fields of one array on the host and one on the device, sent in one copy.

For what a runner tells its device beside a pass's rows, which are `inputs`'. One buffer is enough:
a runner that fills it waits for the results of the pass before it fills it again.
"""

from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from outrider.worker.gpu.input_layout import ALIGNED, Field
from outrider.worker.gpu.transfers import Transfers

Shapes = Mapping[str, tuple[str, tuple[int, ...]]]
"""Dtype and shape by name."""


class Staging:
    """`host` and `device`: each field by name; the device's never move, as graphs want it."""

    def __init__(self, shapes: Shapes, device: str, copies: Transfers) -> None:
        self._copies = copies
        self._places: dict[str, Field] = {}
        words = 0
        for name, (kind, shape) in shapes.items():
            place = Field(-(-words // ALIGNED) * ALIGNED, kind, shape)
            self._places[name], words = place, place.stop
        self._host = copies.host(words, dtype=torch.int32)
        self._device = torch.zeros(words, dtype=torch.int32, device=device)
        flat = self._host.numpy()
        self.host: dict[str, NDArray[Any]] = {n: p.host(flat) for n, p in self._places.items()}
        self.device: dict[str, Tensor] = {
            n: p.device(self._device) for n, p in self._places.items()
        }

    def send(self, last: str) -> None:
        """Copies all fields up to `last`, for compute that is asked for afterwards."""
        words = self._places[last].stop
        with self._copies.computing():
            self._device[:words].copy_(self._host[:words], non_blocking=True)
