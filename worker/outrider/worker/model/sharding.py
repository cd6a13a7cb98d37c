"""One rank's share of a model: whole heads, a slice of the feed-forward width, a slice of the ids.

Arithmetic on shapes and tensors; files are the loader's, sums over ranks the pass's. The cut is
Megatron-LM's (arXiv:1909.08053, section 3): layers that widen are cut by outputs, layers that
narrow by inputs, so that ranks meet once per half layer. What does not divide is padded with
zeros, which add exactly nothing.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.cpu.packing import BLOCK, padded
from outrider.worker.errors import ModelError
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.matrix import AsStored, inputs_of, outputs_of

Index = NDArray[np.int64]

NO_HEAD = -1
"""In a list of heads: a padded one."""


@dataclass(frozen=True, slots=True)
class HeadCut:
    """Distribution of heads: every rank has `kv` key heads, each with `group` query heads."""

    parts: int
    """Ranks' shares that one key head's queries are cut into; above 1 the key head is copied."""
    kv: int
    group: int

    @classmethod
    def of(cls, config: ModelConfig, degree: int) -> "HeadCut":
        """Cut whole key heads, one or more for each rank; else copies, with fewest queries."""
        group = config.heads // config.kv_heads
        if degree <= config.kv_heads:
            return cls(1, _share(config.kv_heads, degree), group)
        cuts = [
            cls(parts, _share(config.kv_heads * parts, degree), _share(group, parts))
            for parts in range(1, group + 1)
        ]
        return min(cuts, key=lambda cut: (cut.kv * cut.group, cut.kv))


@dataclass(frozen=True, slots=True)
class Shard:
    """The part of a model that rank `rank` of `degree` holds; any degree works."""

    whole: ModelConfig
    rank: int
    degree: int

    @property
    def config(self) -> ModelConfig:
        """Shapes of this rank's tensors; the same on all ranks."""
        if self.degree == 1:
            return self.whole
        cut = HeadCut.of(self.whole, self.degree)
        reduced = self.whole.output_ids is not None
        return dataclasses.replace(
            self.whole,
            heads=cut.kv * cut.group,
            kv_heads=cut.kv,
            ffn=_width(self.whole.ffn, self.degree),
            vocab=_ids(self.whole.vocab, self.degree),
            output_ids=tuple(range(_ids(self.whole.outputs, self.degree))) if reduced else None,
        )

    @property
    def first_token(self) -> int:
        """The id of the embedding's first row."""
        return self.rank * _ids(self.whole.vocab, self.degree)

    def cut(self, name: str, tensor: AsStored) -> AsStored:
        """Return this rank's part of the tensor of a name; the tensor itself where all have it.

        Raises `ModelError` for quants whose groups it would cut.
        """
        if self.degree == 1:
            return tensor
        ffn = self._slice(self.whole.ffn, _width(self.whole.ffn, self.degree))
        match name.split(".")[-2]:
            case "q_proj":
                return outputs_of(tensor, self._elements(self._queries()))
            case "k_proj" | "v_proj":
                return outputs_of(tensor, self._elements(self._keys()))
            case "o_proj":
                return self._narrowed(name, tensor, self._elements(self._queries()))
            case "gate_proj" | "up_proj":
                return outputs_of(tensor, ffn)
            case "down_proj":
                return self._narrowed(name, tensor, ffn)
            case "embed_tokens" | "lm_head":
                return outputs_of(tensor, self._slice(len(tensor), _ids(len(tensor), self.degree)))
            case _:
                return tensor

    def _narrowed(self, name: str, tensor: AsStored, index: Index) -> AsStored:
        try:
            return inputs_of(tensor, index)
        except ValueError as error:
            cut = f"of {self.degree} ranks: {error}"
            raise ModelError(f"{name} cannot be cut for rank {self.rank} {cut}") from error

    def _elements(self, heads: Sequence[int]) -> Index:
        """Return the index of heads' elements, in the order of `heads`; -1 for `NO_HEAD`."""
        size, first = self.whole.head_dim, np.array(heads)[:, None]
        return np.where(first == NO_HEAD, -1, first * size + np.arange(size)).reshape(-1)

    def _keys(self) -> list[int]:
        """Return the whole model's key head of each of this rank's; `NO_HEAD` for a padded one."""
        return [key if set(qs) != {NO_HEAD} else NO_HEAD for key, qs in self._groups()]

    def _queries(self) -> list[int]:
        """Return the whole model's query head of each of this rank's, in order."""
        return [query for _, queries in self._groups() for query in queries]

    def _groups(self) -> list[tuple[int, list[int]]]:
        """Return this rank's key heads, each with its queries."""
        cut, per = HeadCut.of(self.whole, self.degree), self.whole.heads // self.whole.kv_heads
        groups = []
        for number in range(self.rank * cut.kv, (self.rank + 1) * cut.kv):
            key, part = divmod(number, cut.parts)
            within = [part * cut.group + i for i in range(cut.group)]
            real = key < self.whole.kv_heads
            queries = [key * per + q if real and q < per else NO_HEAD for q in within]
            groups.append((key, queries))
        return groups

    def _slice(self, size: int, per: int) -> Index:
        """Return the index of this rank's `per` elements of `size`; -1 where there are fewer."""
        index = self.rank * per + np.arange(per)
        return np.where(index < size, index, -1)


def _share(size: int, degree: int) -> int:
    return -(-size // degree)


def _width(size: int, degree: int) -> int:
    """Return the feed-forward width of each rank: whole blocks of outputs, so that rows of the
    layer that narrows begin where a processor or a GPU reads them at full speed."""
    return padded(_share(size, degree), BLOCK)


def _ids(count: int, degree: int) -> int:
    """Return token ids of each rank: whole blocks of the head's outputs, and of noise."""
    return padded(_share(count, degree), BLOCK)
