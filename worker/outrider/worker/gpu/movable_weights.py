"""Weights of one model that can leave their device for host memory and come back to the same
addresses.

Copies run on a stream of their own, beside passes of other models. Leaves pages to `device_pages`,
and when weights move to `launch.memory_lender`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from outrider.worker.gpu.device_pages import DevicePages, DeviceRegion, NoPages
from outrider.worker.gpu.weights import DeviceWeights
from outrider.worker.model.movable_weights import CopyFailed

ALIGNED = 256
"""Alignment of tensors in bytes, as torch's own are."""


class MovableDeviceWeights:
    """Weights in a region of their own, and in host memory while they are away."""

    def __init__(self, weights: DeviceWeights, pages: DevicePages) -> None:
        """Copy `weights`; raises `NoPages` if there is no memory for a copy."""
        own: dict[int, Tensor] = {}
        changed(weights, lambda tensor: own.setdefault(id(tensor), tensor))
        self._region = DeviceRegion(pages, sum(map(room, own.values())))
        self._region.map(0, self._region.size)
        self._bytes = self._region.view()
        placed, start = dict[int, Tensor](), 0
        for key, tensor in own.items():
            part = self._bytes[start : start + tensor.numel() * tensor.element_size()]
            placed[key] = part.view(tensor.dtype).view(tensor.shape)
            placed[key].copy_(tensor)
            start += room(tensor)
        self.weights: DeviceWeights = changed(weights, lambda tensor: placed[id(tensor)])
        """The copy: what passes read."""
        self._pages = pages
        self._on_card = self._bytes.is_cuda
        self._host = torch.empty(self._region.size, dtype=torch.uint8, pin_memory=self._on_card)
        """The weights while they are away: memory of the host that is taken from the start, since
        pinning it takes seconds."""
        self._ended: torch.cuda.Event | None = None
        self._leaving: bool | None = None
        """Direction of the copy under way; None: there is none."""

    @property
    def bytes(self) -> int:
        """Bytes of the device that they take."""
        return self._region.size

    @property
    def mapped_pages(self) -> int:
        """Pages that they take now."""
        return self._region.mapped_pages

    def offload(self) -> None:
        """Begin to copy them to host memory; no pass may run now. Raises `CopyFailed`."""
        try:
            self._copy(self._bytes, self._host)
        except RuntimeError as error:
            raise CopyFailed(str(error)) from error
        self._leaving = True

    def reload(self) -> None:
        """Begin to copy them back; raises `CopyFailed`."""
        try:
            self._region.map(0, self._region.size)
            self._copy(self._host, self._bytes)
        except (NoPages, RuntimeError) as error:
            self._region.unmap(0, self._region.size)
            raise CopyFailed(str(error)) from error
        self._leaving = False

    def finished(self) -> bool:
        """Return whether the copy that was begun has ended; what has left gives up its pages."""
        if self._leaving is None or (self._ended is not None and not self._ended.query()):
            return False
        if self._leaving:
            self._pages.driver.settle()
            self._region.unmap(0, self._region.size)
        self._leaving = None
        return True

    def _copy(self, source: Tensor, destination: Tensor) -> None:
        if not self._on_card:
            destination.copy_(source)
            return
        self._pages.driver.settle()  # passes on other streams still read or wrote it
        stream = torch.cuda.Stream(self._bytes.device)
        self._ended = torch.cuda.Event()
        with torch.cuda.stream(stream):
            destination.copy_(source, non_blocking=True)
            self._ended.record()


def changed(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return weights with every tensor changed, in records and tuples of them."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple):
        return tuple(changed(part, change) for part in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value)]
        return dataclasses.replace(
            value, **{name: changed(getattr(value, name), change) for name in fields}
        )
    return value


def room(tensor: Tensor) -> int:
    """Return the bytes that a tensor takes of a region."""
    return -(-tensor.numel() * tensor.element_size() // ALIGNED) * ALIGNED
