"""Tokens that a pass of the target commits with trees of so many nodes, over texts that it wrote.

Each pass verifies the draft's likeliest nodes, best first, drafted anew behind what is committed:
what the worker's own tree and the draft's own passes give if the draft has time. How sure the draft
is follows from an error scale that learns from every pass of all texts, as in a service: so what a
text gives depends a little on those beside it, though rows of a batch do not change each other.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.distil.answers import NO_TOKENS
from outrider.distil.engine import Engine
from outrider.distil.shards import ANSWERED, Chat
from outrider.worker.draft.session import BRANCH
from outrider.worker.kv.block_pool import BlockTable
from outrider.worker.model.rows import Rows
from outrider.worker.speculation.acceptance import ErrorScale
from outrider.worker.tree.draft import DraftTree
from outrider.worker.tree.draft_rows import DraftRows, RowColumns
from outrider.worker.tree.walk import ROOT

DEPTH = 32
"""Depth of a tree: the service's default."""

Floats = NDArray[np.float32]


@dataclass(slots=True, eq=False)
class DraftWalk:
    """The draft behind one text, from root to root."""

    chat: Chat
    block_table: BlockTable
    nodes: int
    """Nodes of each tree."""
    error: ErrorScale
    """Error scale of all texts, as a worker's is that of all its requests."""
    tree: DraftTree = field(init=False)
    root: int = field(init=False)
    """Position of the last committed token."""
    passes: int = 0
    """Passes of the target."""

    def __post_init__(self) -> None:
        self.root = first_root(self.chat)
        self.tree = DraftTree(self.root + 1)

    @property
    def last(self) -> int:
        """Last position that a pass of the target can commit a token behind."""
        return len(self.chat.tokens) - 2

    def write(self, rows: DraftRows, most: int) -> int:
        """Write the rows of its next pass, at most so many; return their number."""
        if self.tree.root_expanded:
            return self.tree.expand(rows, self.block_table, 1, DEPTH)
        count = self.tree.prefill(rows, self.block_table, self.chat.tokens, most)
        self.tree.mark_prefilled(count)
        return count

    def offer(
        self, columns: RowColumns, output: int, tokens: NDArray[np.int32], logprobs: Floats
    ) -> None:
        """Take the children of the row of one output; commit once the tree has all its nodes."""
        part = slice(output, output + 1)
        self.tree.offer(columns.leaf[part].copy(), columns.offset[part].copy(), tokens, logprobs)
        self.tree.send(self.nodes, 1, DEPTH)
        if len(self.tree) >= self.nodes or not self.tree.has_leaves(DEPTH):
            self._commit()

    def _commit(self) -> None:
        """Go on behind the nodes that follow the text, and the token after them."""
        known = self.root + 1
        self.root += 1 + self._follow()
        self.passes += 1
        self.tree = DraftTree(self.root + 1)
        self.tree.mark_prefilled(known)

    def _follow(self) -> int:
        """Return how many nodes follow the text, one after the other; the error scale learns."""
        nodes, path = self.tree.nodes, [ROOT]
        pairs = zip(nodes.parent.tolist(), nodes.token.tolist(), strict=True)
        children = {pair: node for node, pair in enumerate(pairs)}
        while self.root + len(path) <= self.last:
            following = children.get((path[-1], int(self.chat.tokens[self.root + len(path)])))
            if following is None:
                break
            path.append(following)
        self.error.learn(sum(map(self._surplus, path, range(self.root + 1, self.last + 2))))
        return len(path) - 1

    def _surplus(self, parent: int, position: int) -> float:
        """Return the mass of a node's first child, less 1 where it is the text at a position."""
        nodes = self.tree.nodes
        children = np.flatnonzero(nodes.parent == parent)
        if not len(children):
            return 0.0
        first = children[nodes.logprob[children].argmax()]
        hit = bool(nodes.token[first] == self.chat.tokens[position])
        return math.exp(nodes.logprob[first]) - hit


@dataclass(frozen=True, slots=True)
class TokensPerPass:
    """What trees of one size give."""

    committed: int
    passes: int

    @property
    def mean(self) -> float:
        return self.committed / max(self.passes, 1)


def tokens_per_pass(
    engine: Engine, chats: Sequence[Chat], nodes: int, error: ErrorScale | None = None
) -> TokensPerPass:
    """Walk along the answers of chats with trees of `nodes` nodes.

    `engine` has the draft, and room for all chats. `error`: the scale that learns; None: a new one.
    """
    ids = np.array(engine.config.output_ids or range(engine.config.vocab), np.int32)
    rows = DraftRows(engine.row_capacity, DEPTH)
    error = error or ErrorScale()
    walks = [DraftWalk(chat, _room(engine), nodes, error) for chat in chats]
    left = [walk for walk in walks if walk.root <= walk.last]
    while left:
        _advance(engine, left, rows, ids, error)
        left = [walk for walk in left if walk.root <= walk.last]
    for walk in walks:
        engine.kv_cache.free(walk.block_table)
    committed = sum(walk.root - first_root(walk.chat) for walk in walks)
    return TokensPerPass(committed, sum(walk.passes for walk in walks))


def first_root(chat: Chat) -> int:
    """Return the position of the prompt's last token."""
    return int(np.argmax(chat.writers == ANSWERED)) - 1


def shortened(chat: Chat, tokens: int) -> Chat:
    """Return the chat with so many tokens of its answer at most."""
    end = first_root(chat) + 1 + tokens
    return Chat(chat.tokens[:end], chat.writers[:end], chat.features[: end - 1])


def _advance(
    engine: Engine,
    walks: Sequence[DraftWalk],
    rows: DraftRows,
    ids: NDArray[np.int32],
    error: ErrorScale,
) -> None:
    """Run one pass of the draft over as many texts as it has room for."""
    written = list(_write(walks, rows, engine.row_capacity))
    columns = rows.take()
    logits = engine.forward(rows_of(columns, [walk.block_table for walk, _ in written]))
    tokens, logprobs = children(logits / np.float32(error.value), ids, engine.config.output_share)
    output = 0
    for walk, has_output in written:
        if has_output:
            part = slice(output, output + 1)
            walk.offer(columns, output, tokens[part], logprobs[part])
            output += 1


def _write(
    walks: Sequence[DraftWalk], rows: DraftRows, room: int
) -> Iterator[tuple[DraftWalk, bool]]:
    """Write rows of texts while there is room; yield each, and True if it has an output."""
    for walk in walks:
        count = walk.write(rows, room) if room else 0
        if count:
            room -= count
            yield walk, walk.tree.root_expanded


def rows_of(columns: RowColumns, block_tables: Sequence[BlockTable]) -> Rows:
    """Return the rows that trees wrote, one line of `block_tables` each."""
    return Rows(
        tokens=columns.token,
        positions=columns.position,
        slots=columns.slot,
        sequence=columns.tree,
        prefix=columns.prefix,
        ancestors=columns.ancestors,
        depth=columns.depth,
        outputs=columns.output,
        tables=np.stack([block_table.table for block_table in block_tables]),
    )


def children(
    logits: Floats, ids: NDArray[np.int32], share: float
) -> tuple[NDArray[np.int32], Floats]:
    """Return tokens and log-probabilities of the best children, [outputs, BRANCH] each.

    `share`: of the target's tokens, those among the draft's outputs `ids`.
    """
    best = torch.from_numpy(logits).log_softmax(-1).topk(min(BRANCH, logits.shape[1]))
    return ids[best.indices.numpy()], (best.values + math.log(share)).numpy()


def _room(engine: Engine) -> BlockTable:
    block_table = engine.kv_cache.admit(NO_TOKENS, engine.kv_cache.longest)
    assert block_table is not None, "the engine has room for all chats"
    return block_table
