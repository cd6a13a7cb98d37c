"""A draft over recorded chats: keys and values, and the worker's own tree of draft tokens for each.

The tree is `outrider.worker.tree.draft`; only the passes are torch's, for the product runs no draft
that sees features. All chats advance together, a pass of each in one call: what uses a draft is a
generator that yields the pass it wants, and is sent its results.
"""

import math
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from outrider.distil.network import Draft
from outrider.distil.shards import Chat
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
T = TypeVar("T")


class Results(NamedTuple):
    """Of one pass over one chat."""

    hidden: Tensor
    """[rows, hidden]."""
    tokens: Ints
    """[outputs, BRANCH] best children of the rows whose children are wanted, likeliest first."""
    logprobs: NDArray[np.float32]
    """[outputs, BRANCH]."""


@dataclass(frozen=True, slots=True)
class DraftPass:
    """Rows of one pass over one chat."""

    tokens: Ints
    features: Tensor
    """[rows, hidden] that each row sees."""
    positions: Ints
    slots: Tensor
    """int64[rows] where keys and values go."""
    visible: Tensor
    """bool[rows, slots]."""
    outputs: int
    """Of the last rows so many have their children wanted."""
    cache: "Cache"


Passes = Generator[DraftPass, Results, T]


@dataclass(frozen=True, slots=True)
class Guesser:
    """A draft and the ids that it can output."""

    draft: Draft
    ids: Ints
    """[outputs] the target's id of each output."""
    share: float
    """Of the target's tokens, those among the outputs."""

    def together(self, runs: Iterable[Passes[None]]) -> None:
        """Let all runs take their passes in one call each, until the last has ended."""
        wanted = {run: next(run) for run in runs}
        while wanted:
            results = self.run(list(wanted.values()))
            for run, result in zip(list(wanted), results, strict=True):
                try:
                    wanted[run] = run.send(result)
                except StopIteration:
                    del wanted[run]

    def run(self, passes: Sequence[DraftPass]) -> list[Results]:
        """Run one pass of each chat."""
        counts = [len(one.tokens) for one in passes]

        def attend(layer: int, *qkv: Tensor) -> Tensor:
            parts = zip(passes, *(x.split(counts, -2) for x in qkv), strict=True)
            found = [one.cache.attend(layer, one, *own) for one, *own in parts]
            return torch.cat(found, -2)

        tokens, positions = (
            torch.from_numpy(np.concatenate(column).astype(np.int64))
            for column in ([one.tokens for one in passes], [one.positions for one in passes])
        )
        features = torch.cat([one.features for one in passes])
        hidden = self.draft(tokens, features, positions, attend).split(counts)
        outputs = [one.outputs for one in passes]
        ends = [states[-one.outputs :] for states, one in zip(hidden, passes, strict=True)]
        children = (np.split(x, np.cumsum(outputs)[:-1]) for x in self.children(torch.cat(ends)))
        for one, states in zip(passes, hidden, strict=True):
            one.cache.hidden[one.slots] = states
        return [Results(*parts) for parts in zip(hidden, *children, strict=True)]

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

    def begin(self, root: int) -> Passes[None]:
        """Read everything up to a root, and begin a tree there."""
        self.root = root
        self.tree = DraftTree(root + 1)
        yield from self._read(0)
        self.passes = self.rows = 0

    def begin_again(self, committed: int) -> Passes[None]:
        """Move the root by some tokens, with their features, and begin another tree there."""
        first, self.root = self.root + 1, self.root + committed
        self.tree = DraftTree(self.root + 1)
        yield from self._read(first)

    def commit(self, tokens: Ints) -> Passes[bool]:
        """Move the root along tokens; true features of theirs have come. Return True for a pass.

        The tree lives on. A draft that sees features reads the committed tokens again, with those,
        and may find other children of the root; what was sent before stays as it is.
        """
        moved = self.tree.commit(self.root, tokens)
        self._cache.move(moved.sources, moved.destinations)
        before, self.root = self.root, self.root + len(tokens)
        if self.guesser.draft.sees_features:
            yield from self._read(before + 1)
            return True
        if not self.tree.root_expanded:
            yield from self._read(self.tree.cached)
            return True
        return False

    def grow(self, width: int, nodes: int, new: int) -> Passes[bool]:
        """Make nodes, at most `new` and `nodes` at a time, and expand the best `width`.

        Return False where nothing is left to expand.
        """
        self.send(nodes, new)
        if not self.tree.expand(self._written, self._block_table, width, DEPTH):
            return False
        c = self._written.take()
        rows = np.arange(len(c.token))
        above = np.where(c.depth > 1, c.ancestors[rows, c.depth - 2], self.root)
        visible = torch.arange(ROOM)[None] < torch.from_numpy(c.prefix)[:, None]
        for row, depth in enumerate(c.depth.tolist()):
            visible[row, torch.from_numpy(c.ancestors[row, :depth].astype(np.int64))] = True
        features = self._cache.hidden[torch.from_numpy(above.astype(np.int64))]
        leaves, offsets = c.leaf.copy(), c.offset.copy()
        result = yield self._pass(c.token, features, c.position, offsets, visible, len(rows))
        self.tree.offer(leaves, offsets, result.tokens, result.logprobs)
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

    def _read(self, first: int) -> Passes[None]:
        """Read committed tokens from a position to the root; offer children that the root lacks."""
        positions = np.arange(first, self.root + 1, dtype=np.int32)
        features = torch.zeros(len(positions), self.chat.features.shape[1])
        known = positions[positions > 0]
        features[len(positions) - len(known) :] = torch.from_numpy(
            self.chat.features[known - 1].astype(np.float32)
        )
        visible = torch.arange(ROOM)[None] <= torch.from_numpy(positions)[:, None]
        tokens = self.chat.tokens[first : self.root + 1]
        result = yield self._pass(tokens, features, positions, positions, visible, 1)
        if not self.tree.root_expanded:
            self.tree.mark_prefilled(self.root + 1 - self.tree.cached)
        logprobs = result.logprobs.copy()
        for table in (self.tree.nodes, self.tree.candidates):
            logprobs[np.isin(result.tokens, table.token[table.parent == ROOT])] = -np.inf
        root, offset = np.array([ROOT], np.int32), np.array([self.root], np.int32)
        self.tree.offer(root, offset, result.tokens, logprobs)

    def _pass(
        self,
        tokens: Ints,
        features: Tensor,
        positions: Ints,
        slots: Ints,
        visible: Tensor,
        outputs: int,
    ) -> DraftPass:
        """Return one pass, and count it."""
        self.passes += 1
        self.rows += len(tokens)
        where = torch.from_numpy(slots.astype(np.int64))
        return DraftPass(
            tokens.copy(), features, positions.copy(), where, visible, outputs, self._cache
        )


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
        self, layer: int, one: DraftPass, queries: Tensor, keys: Tensor, values: Tensor
    ) -> Tensor:
        """Keep keys and values [heads, rows, head_dim] of a pass; attend to what is visible."""
        self.keys[layer][:, one.slots] = keys
        self.values[layer][:, one.slots] = values
        used = int(one.visible.any(0).nonzero()[-1]) + 1
        return F.scaled_dot_product_attention(
            queries[None],
            self.keys[None, layer, :, :used],
            self.values[None, layer, :, :used],
            attn_mask=one.visible[:, :used],
            enable_gqa=True,
        )[0]

    def move(self, sources: Ints, destinations: Ints) -> None:
        """Copy slots, all of them read before any is written."""
        old, new = (torch.from_numpy(slots.astype(np.int64)) for slots in (sources, destinations))
        for table in (self.keys, self.values):
            table[:, :, new] = table[:, :, old]
        self.hidden[new] = self.hidden[old]
