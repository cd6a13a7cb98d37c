"""Layout of a pass's inputs: fields of one flat array of int32, at fixed places.

The places are the same for every pass, whatever its size, because graphs hold their addresses.
Leaves the time of copies to `transfers`, and filling the fields to the caller.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outrider.kernels.gpu.attention import DEEPEST
from outrider.kernels.gpu.sampling_inputs import SamplingInputs
from outrider.kernels.sampling.filters import TEMPERATURE_FLOOR
from outrider.worker.gpu.buckets import MOVES
from outrider.worker.gpu.transfers import Transfers

MOST_K = np.iinfo(np.int32).max
ALIGNED = 4
"""Alignment in int32 words: kernels read quicker from addresses that 16 divides."""


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


Shapes = Mapping[str, tuple[str, tuple[int, ...]]]
"""Dtype and shape by name."""
SAMPLING = ("temperature", "top_k", "top_p", "log_min_p", "seed", "choice", "sampled_at")
"""Inputs of sampling, each with a number for every row with output."""
KINDS = {
    "temperature": "float32",
    "top_p": "float64",
    "log_min_p": "float32",
    "seed": "int64",
}
"""Dtypes of inputs that are not int32."""


def input_shapes(rows: int, sequences: int, blocks: int) -> Shapes:
    """Return the inputs of at most `rows` rows, of `sequences` sequences of up to `blocks` blocks.

    The last are block tables, of which only the lines in use travel.
    """
    shapes: dict[str, tuple[int, ...]] = {
        "tokens": (rows,),
        "positions": (rows,),
        "slots": (rows,),  # -1: no KV is written, a padded row
        "sequence": (rows,),  # line of `tables`
        "prefix": (rows,),
        "depth": (rows,),
        "ancestors": (rows, DEEPEST),
        "groups": (rows, 2),  # as `attention_inputs.groups_of` cuts them; 0 rows: a padded group
        "outputs": (rows,),  # rows whose logits are wanted; each has the settings that follow
        **{name: (rows,) for name in SAMPLING},
        "sources": (MOVES[-1],),  # slots; -1: no move
        "destinations": (MOVES[-1],),
        "tables": (sequences, blocks),
    }
    return {name: (KINDS.get(name, "int32"), shape) for name, shape in shapes.items()}


def sampling_inputs(
    fields: Mapping[str, Tensor], outputs: int, *, sampled: bool, filtered: bool
) -> SamplingInputs:
    """Return the sampling settings of the first `outputs` rows with output; `filtered`: some may
    have top-k or top-p."""
    each: dict[str, Any] = {name: fields[name][:outputs] for name in SAMPLING}
    position = each.pop("sampled_at")
    return SamplingInputs(
        **each, position=position, sampled=sampled, cuts_k=filtered, cuts_p=filtered
    )


def sampling_columns(each: NDArray[np.void]) -> dict[str, NDArray[np.generic]]:
    """Return records of `SETTINGS` as the inputs of sampling but for `sampled_at`."""
    temperature = each["temperature"]
    with np.errstate(divide="ignore"):
        log_min_p = np.log(each["min_p"])
    return {
        "temperature": np.where(temperature > 0, np.maximum(temperature, TEMPERATURE_FLOOR), 0.0),
        "top_k": np.minimum(each["top_k"], MOST_K),
        "log_min_p": log_min_p,
        **{name: each[name] for name in ("top_p", "seed", "choice")},
    }


def places_of(shapes: Shapes) -> dict[str, Field]:
    """Return a place for each field, one after the other."""
    places: dict[str, Field] = {}
    words = 0
    for name, (kind, shape) in shapes.items():
        places[name] = Field(-(-words // ALIGNED) * ALIGNED, kind, shape)
        words = places[name].stop
    return places


class Staging:
    """Named fields of one array on the host and one on the device, sent in one copy.

    For what a runner tells its device beside a pass's rows. `host` and `device`: each field by
    name; the device's never move, as graphs want it. One buffer is enough: a runner that fills it
    waits for the results of the pass before it fills it again.
    """

    def __init__(self, shapes: Shapes, device: str, copies: Transfers) -> None:
        self._copies = copies
        places = places_of(shapes)
        words = max(place.stop for place in places.values())
        host = copies.host(words, dtype=torch.int32)
        flat = torch.zeros(words, dtype=torch.int32, device=device)
        self.host: dict[str, NDArray[Any]] = {n: p.host(host.numpy()) for n, p in places.items()}
        self.device: dict[str, Tensor] = {n: p.device(flat) for n, p in places.items()}
        self._up_to = {n: (flat[: p.stop], host[: p.stop]) for n, p in places.items()}

    def send(self, last: str) -> None:
        """Copy all fields up to `last`, for compute that is launched afterwards."""
        device, host = self._up_to[last]
        with self._copies.computing():
            device.copy_(host, non_blocking=True)
