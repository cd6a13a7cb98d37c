"""Layout of a pass's inputs: fields of one flat array of int32, at fixed places.

The places are the same for every pass, whatever its size, because graphs hold their addresses.
Leaves the time of copies to `transfers`, and filling the fields to the caller.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outrider.kernels.gpu.attention import DEEPEST
from outrider.worker.gpu.buckets import MOVES
from outrider.worker.gpu.transfers import Transfers

A = TypeVar("A")
B = TypeVar("B")
ALIGNED = 4
"""int32 words: kernels read quicker from addresses that 16 divides."""


@dataclass(frozen=True, slots=True)
class Field:
    """Place of a field."""

    start: int
    """In words of 4 bytes."""
    kind: str
    """Name of the dtype."""
    shape: tuple[int, ...]

    @property
    def stop(self) -> int:
        """The word after the last."""
        return self.start + math.prod(self.shape) * np.dtype(self.kind).itemsize // 4

    def host(self, flat: NDArray[np.int32]) -> NDArray[np.generic]:
        """Return the field of a host array."""
        return flat[self.start : self.stop].view(self.kind).reshape(self.shape)

    def device(self, flat: Tensor) -> Tensor:
        """Return the field of a tensor."""
        return flat[self.start : self.stop].view(getattr(torch, self.kind)).view(self.shape)


@dataclass(frozen=True, slots=True)
class InputLayout(Generic[A]):
    """Fields of n rows, of which m have outputs; int32 if nothing else is noted."""

    tokens: A  # [n]
    positions: A  # [n]
    slots: A  # [n] -1: no KV is written, a padded row
    sequence: A  # [n] line of `tables`
    prefix: A  # [n]
    depth: A  # [n]
    ancestors: A  # [n, 64]
    groups: A  # [n, 2] as `attention_inputs.groups_of` cuts them; 0 rows: a padded group
    outputs: A  # [m] rows whose logits are wanted
    temperature: A  # float32 [m], and so on as `SamplingInputs` has them
    top_k: A  # [m]
    top_p: A  # float64 [m]
    log_min_p: A  # float32 [m]
    seed: A  # int64 [m]
    choice: A  # [m]
    sampled_at: A  # [m] position of the token to sample
    sources: A  # [512] slots; -1: no move
    destinations: A  # [512]
    tables: A  # [sequences, blocks], the last: only the lines in use travel

    def map(self, function: Callable[[A], B]) -> "InputLayout[B]":
        """Apply `function` to each field."""
        return InputLayout(*(function(getattr(self, f.name)) for f in dataclasses.fields(self)))


def layout(rows: int, sequences: int, blocks: int) -> InputLayout[Field]:
    """Return places for at most `rows` rows of `sequences` sequences of up to `blocks` blocks."""
    shapes: dict[str, tuple[int, ...]] = {
        "ancestors": (rows, DEEPEST),
        "groups": (rows, 2),
        "sources": (MOVES[-1],),
        "destinations": (MOVES[-1],),
        "tables": (sequences, blocks),
    }
    kinds = {"temperature": "float32", "top_p": "float64", "log_min_p": "float32", "seed": "int64"}
    places: list[Field] = []
    for field in dataclasses.fields(InputLayout):
        start = -(-places[-1].stop // ALIGNED) * ALIGNED if places else 0
        kind, shape = kinds.get(field.name, "int32"), shapes.get(field.name, (rows,))
        places.append(Field(start, kind, shape))
    return InputLayout(*places)


Shapes = Mapping[str, tuple[str, tuple[int, ...]]]
"""Dtype and shape by name."""


class Staging:
    """Named fields of one array on the host and one on the device, sent in one copy.

    For what a runner tells its device beside a pass's rows. `host` and `device`: each field by
    name; the device's never move, as graphs want it. One buffer is enough: a runner that fills it
    waits for the results of the pass before it fills it again.
    """

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
        """Copy all fields up to `last`, for compute that is launched afterwards."""
        words = self._places[last].stop
        with self._copies.computing():
            self._device[:words].copy_(self._host[:words], non_blocking=True)
