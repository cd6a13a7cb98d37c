"""A draft over one recorded chat: its keys and values, and the worker's own tree of draft tokens.

The tree is `outrider.worker.tree.draft`; only the passes are torch's, for the product runs no draft
that sees features.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from tools.feature_draft.network import Draft
from tools.feature_draft.shards import Chat
from torch import Tensor

from outrider.worker.draft.session import BRANCH
from outrider.worker.kv.block_pool import BlockPool, BlockTable
from outrider.worker.tree.draft import DraftTree
from outrider.worker.tree.draft_rows import DraftRows
from outrider.worker.tree.growth import Growth
from outrider.worker.tree.walk import ROOT

ROOM = 512
"""Slots of one chat and its tree."""
DEPTH = 32
"""Of the tree: the service's default."""

Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Guesser:
    """A draft and the ids that it can output."""

    draft: Draft
    ids: Ints
    """[outputs] the target's id of each output."""
    share: float
    """Of the target's tokens, those among the outputs."""

    def children(self, hidden: Tensor) -> tuple[Ints, NDArray[np.float32]]:
        """Return tokens and log-probabilities of the best children, [rows, BRANCH] each."""
        best = self.draft.logits(hidden).log_softmax(-1).topk(BRANCH)
        tokens = self.ids[best.indices.numpy()]
        return tokens, (best.values + math.log(self.share)).numpy()


@dataclass(slots=True)
class GrowingDraft:
    """The draft's side of one session."""

    guesser: Guesser
    chat: Chat
    passes: int = 0
    """Of the draft so far, those over the prompt left out."""
    rows: int = 0
    growth: list[Growth] = field(default_factory=list)
    """What was sent."""
    _cache: "Cache" = field(init=False)
    _block_table: BlockTable = field(init=False)
    _written: DraftRows = field(init=False)
    tree: DraftTree = field(init=False)
    root: int = field(init=False)
    """Position of the last committed token."""

    def __post_init__(self) -> None:
        self._cache = Cache.of(self.guesser.draft)
        table = BlockPool(ROOM // 64, ROOM, prefix_cache=False).admit(np.zeros(0, np.int32), ROOM)
        assert table is not None
        self._block_table = table
        self._written = DraftRows(64, DEPTH)

    def begin(self, root: int) -> None:
        """Read everything up to a root, and begin a tree there."""
        self.root = root
        self.tree = DraftTree(root + 1)
        self._offer_root(self._read(0))
        self.passes = self.rows = 0

    def begin_again(self, committed: int) -> None:
        """Move the root by some tokens, with their features, and begin another tree there."""
        first, self.root = self.root + 1, self.root + committed
        self.tree = DraftTree(self.root + 1)
        self._offer_root(self._read(first))

    def commit(self, tokens: Ints) -> bool:
        """Move the root along tokens; true features of theirs have come. Return True for a pass.

        The tree lives on. A draft that sees features reads the committed tokens again, with those,
        and may find other children of the root; what was sent before stays as it is.
        """
        moved = self.tree.commit(self.root, tokens)
        self._cache.move(moved.sources, moved.destinations)
        before, self.root = self.root, self.root + len(tokens)
        if self.guesser.draft.sees_features:
            self._offer_root(self._read(before + 1))
            return True
        if not self.tree.root_expanded:
            self._offer_root(self._read(self.tree.cached))
            return True
        return False

    def grow(self, width: int, nodes: int, new: int) -> bool:
        """Make nodes, at most `new` and `nodes` at a time, and expand the best `width`.

        Return False where nothing is left to expand.
        """
        self.send(nodes, new)
        if not self.tree.expand(self._written, self._block_table, width, DEPTH):
            return False
        c = self._written.take()
        above = np.where(c.depth > 1, c.ancestors[np.arange(len(c.depth)), c.depth - 2], self.root)
        visible = torch.zeros(len(c.token), ROOM, dtype=torch.bool)
        for row, (prefix, depth) in enumerate(
            zip(c.prefix.tolist(), c.depth.tolist(), strict=True)
        ):
            visible[row, :prefix] = True
            visible[row, torch.from_numpy(c.ancestors[row, :depth].astype(np.int64))] = True
        features = self._cache.hidden[torch.from_numpy(above.astype(np.int64))]
        hidden = self._run(c.token, features, c.position, c.offset, visible)
        self.tree.offer(c.leaf, c.offset, *self.guesser.children(hidden))
        return True

    def send(self, nodes: int, new: int) -> None:
        """Make nodes of the best candidates, at most `new`; at most `nodes` live."""
        growth = self.tree.send(nodes, new, DEPTH)
        if growth is not None:
            self.growth.append(growth)

    def best(self, count: int) -> list[int]:
        """Return the nodes that a pass of the target verifies, likeliest first."""
        return np.argsort(-self.tree.nodes.score, kind="stable")[:count].tolist()

    def accepted(self, rows: Sequence[int]) -> int:
        """Return how many of the verified rows follow the text, one after the other."""
        nodes = self.tree.nodes
        children = {(int(nodes.parent[row]), int(nodes.token[row])): row for row in rows}
        at, count = ROOT, 0
        while (key := (at, int(self.chat.tokens[self.root + count + 1]))) in children:
            at, count = children[key], count + 1
            if self.root + count + 1 == len(self.chat.tokens) - 1:
                break  # the last token has no feature, and nothing to follow
        return count

    def _read(self, first: int) -> Tensor:
        """Read committed tokens from a position to the root; return the root's hidden state [1]."""
        positions = np.arange(first, self.root + 1, dtype=np.int32)
        hidden_size = self.chat.features.shape[1]
        features = torch.zeros(len(positions), hidden_size)
        known = positions[positions > 0]
        features[len(positions) - len(known) :] = torch.from_numpy(
            self.chat.features[known - 1].astype(np.float32)
        )
        visible = torch.arange(ROOM)[None] <= torch.from_numpy(positions)[:, None]
        tokens = self.chat.tokens[first : self.root + 1]
        return self._run(tokens, features, positions, positions, visible)[-1:]

    def _offer_root(self, hidden: Tensor) -> None:
        """Offer the root's children that the tree has not."""
        if not self.tree.root_expanded:
            self.tree.mark_prefilled(self.root + 1 - self.tree.cached)
        tokens, logprobs = self.guesser.children(hidden)
        for table in (self.tree.nodes, self.tree.candidates):
            logprobs[np.isin(tokens, table.token[table.parent == ROOT])] = -np.inf
        self.tree.offer(
            np.array([ROOT], np.int32), np.array([self.root], np.int32), tokens, logprobs
        )

    def _run(
        self, tokens: Ints, features: Tensor, positions: Ints, slots: Ints, visible: Tensor
    ) -> Tensor:
        """Run one pass; return hidden states [rows, hidden]."""
        self.passes += 1
        self.rows += len(tokens)
        where = torch.from_numpy(slots.astype(np.int64))
        hidden: Tensor = self.guesser.draft(
            torch.from_numpy(tokens.astype(np.int64)),
            features,
            torch.from_numpy(positions.astype(np.int64)),
            lambda layer, q, k, v: self._cache.attend(layer, where, visible, (q, k, v)),
        )
        self._cache.hidden[where] = hidden
        return hidden


@dataclass(frozen=True, slots=True)
class Cache:
    """Keys, values and last hidden states by slot."""

    keys: Tensor
    """[layers, key heads, slots, head_dim]; so are values."""
    values: Tensor
    hidden: Tensor
    """[slots, hidden]."""

    @classmethod
    def of(cls, draft: Draft) -> "Cache":
        """Return an empty one."""
        config = draft.config
        shape = (len(draft.layers), config.kv_heads, ROOM, config.head_dim)
        return cls(torch.zeros(shape), torch.zeros(shape), torch.zeros(ROOM, config.hidden))

    def attend(
        self, layer: int, slots: Tensor, visible: Tensor, qkv: tuple[Tensor, Tensor, Tensor]
    ) -> Tensor:
        """Keep keys and values [heads, rows, head_dim] at `slots`; attend to what is visible."""
        queries, keys, values = qkv
        self.keys[layer][:, slots] = keys
        self.values[layer][:, slots] = values
        used = int(visible.any(0).nonzero()[-1]) + 1
        return F.scaled_dot_product_attention(
            queries[None],
            self.keys[None, layer, :, :used],
            self.values[None, layer, :, :used],
            attn_mask=visible[:, :used],
            enable_gqa=True,
        )[0]

    def move(self, sources: Ints, destinations: Ints) -> None:
        """Copy slots, all of them read before any is written."""
        old, new = (torch.from_numpy(slots.astype(np.int64)) for slots in (sources, destinations))
        for table in (self.keys, self.values):
            table[:, :, new] = table[:, :, old]
        self.hidden[new] = self.hidden[old]
