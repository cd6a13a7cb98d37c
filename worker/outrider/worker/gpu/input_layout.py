"""What the host tells a device of one pass: fields of one flat array of int32, at fixed places.

The same places for every pass, whatever its size, because graphs hold their addresses. Knows
nothing of copies, nor of how the fields follow from a step.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outrider.kernels.gpu.attention import DEEPEST
from outrider.worker.gpu.buckets import MOVES

A = TypeVar("A")
B = TypeVar("B")
ALIGNED = 4
"""int32 words: kernels read quicker from addresses that 16 divides."""


@dataclass(frozen=True, slots=True)
class Field:
    """Where a field lies."""

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
        """The field of a host array."""
        return flat[self.start : self.stop].view(self.kind).reshape(self.shape)

    def device(self, flat: Tensor) -> Tensor:
        """The field of a tensor."""
        return flat[self.start : self.stop].view(getattr(torch, self.kind)).view(self.shape)


@dataclass(frozen=True, slots=True)
class InputLayout(Generic[A]):
    """All of them: n rows, of which m have outputs; int32 unless something else is said."""

    tokens: A  # [n]
    positions: A  # [n]
    slots: A  # [n] -1: no KV is written, a padded row
    sequence: A  # [n] line of `tables`
    prefix: A  # [n]
    depth: A  # [n]
    ancestors: A  # [n, 64]
    groups: A  # [n, 2] as `contexts.groups_of` cuts them; 0 rows: a padded group
    outputs: A  # [m] rows whose logits are wanted
    temperature: A  # float32 [m], and so on as `draws.Draws` has them
    top_k: A  # [m]
    top_p: A  # float64 [m]
    floor: A  # float32 [m]
    seed: A  # int64 [m]
    choice: A  # [m]
    drawn_at: A  # [m] where the token will stand
    sources: A  # [512] slots; -1: no move
    destinations: A  # [512]
    tables: A  # [sequences, blocks], the last: only the lines in use travel

    def map(self, function: Callable[[A], B]) -> "InputLayout[B]":
        """The same of each field."""
        return InputLayout(*(function(getattr(self, f.name)) for f in dataclasses.fields(self)))


def layout(rows: int, sequences: int, blocks: int) -> InputLayout[Field]:
    """Places for at most `rows` rows of `sequences` sequences of up to `blocks` blocks."""
    shapes: dict[str, tuple[int, ...]] = {
        "ancestors": (rows, DEEPEST),
        "groups": (rows, 2),
        "sources": (MOVES[-1],),
        "destinations": (MOVES[-1],),
        "tables": (sequences, blocks),
    }
    kinds = {"temperature": "float32", "top_p": "float64", "floor": "float32", "seed": "int64"}
    places: list[Field] = []
    for field in dataclasses.fields(InputLayout):
        start = -(-places[-1].stop // ALIGNED) * ALIGNED if places else 0
        kind, shape = kinds.get(field.name, "int32"), shapes.get(field.name, (rows,))
        places.append(Field(start, kind, shape))
    return InputLayout(*places)
