"""Chained draft passes: run ahead in one CUDA-graph launch, before the scheduler requests them.

A pass of a small draft takes less time than the host needs to settle it and to request the next. So
the device goes on by itself (`outrider.kernels.gpu.tree_growth`), by the rules of `tree.draft`, and
the results of all passes come back together. Leaves the passes that are requested, and the copies,
to `draft_runner`.

*A result is used only for an equal request.* When the scheduler requests a step, its rows (token,
position, slot, prefix and ancestors of each, and the table they are in) and its sampling settings
are compared with those of the next anticipated pass of the same session. If they are equal the
result is what a launch would bring, bit for bit, because a row's result depends on nothing else; if
anything differs all that is left is dropped. The KV behind equal rows is equal too: only launches
write KV, and a launch ends an anticipation; only commits move it, and a commit moves the session's
root, hence every row's prefix.

*Passes that are never requested do no harm.* Their KV lies right behind that of the tree's expanded
nodes, at offsets that hold nothing, in room that the session has; a pass that would need more room
is not run, and ends the chain (its rows are padding, with slot -1). The next requested pass writes
such an offset before any of its rows reads it. Moves that a commit queues are run by the next
launch, after all passes of this one: they read slots of nodes whose passes were requested, which
later passes of the chain never write, and may overwrite the others.
"""

import functools
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outrider.kernels.gpu.attention import DEEPEST
from outrider.kernels.gpu.attention_inputs import group_rows
from outrider.kernels.gpu.tree_growth import (
    CANDIDATES,
    COLUMNS,
    MAX_GROWTH_ROWS,
    NODES,
    Header,
    NextRows,
    TreeGrowth,
    grow,
)
from outrider.kernels.jit.compiled import njit
from outrider.kernels.jit.handle import Handle, handle
from outrider.worker.draft.batch import LEAF_ROWS, MAX_WIDTH, DraftBatch, DraftPart
from outrider.worker.draft.session import BRANCH, DraftSession
from outrider.worker.engine.runner import ChildQuery, ChildRules, TopChildren
from outrider.worker.gpu.buckets import bucket, group_bucket, up_to
from outrider.worker.gpu.child_scores import ChildScoring, ScoreVariant
from outrider.worker.gpu.input_layout import Shapes, Staging
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.staged_fields import TreeFields
from outrider.worker.model.rows import Rows
from outrider.worker.tree import draft_table
from outrider.worker.tree.draft_table import DraftTables
from outrider.worker.tree.growth import Ints
from outrider.worker.tree.walk import ROOT

CHAINED = 4
"""Passes of a launch, the requested one among them. More passes save
more launches and keep a commit waiting for longer. On an H100 a pass of Llama-3.2-1B took 1.58 ms
alone and 1.50 in a launch of four, one of SmolLM2-135M 1.14 and 1.08 (2026-11-26)."""
MAX_CHAINED = 6
"""More could offer more candidates than the device holds."""
COLUMN_COUNT = int(COLUMNS.value)
ROW_WORDS = COLUMN_COUNT + DEEPEST + 2 * BRANCH
"""Words of a row of results: itself, its ancestors, its children and their log-probabilities."""
TREE: Shapes = {
    "header": ("int32", (len(Header._fields),)),
    "leaves": ("int32", (MAX_GROWTH_ROWS,)),
    **{name: ("int32", (NODES,)) for name in ("parent", "token", "depth", "slot")},
    "score": ("float32", (NODES,)),
    "candidate_parent": ("int32", (CANDIDATES,)),
    "candidate_token": ("int32", (CANDIDATES,)),
    "candidate_score": ("float32", (CANDIDATES,)),
}
LAST = "candidate_score"
"""The last field of a tree."""


@dataclass(frozen=True, slots=True)
class PassResult:
    """One pass among the results of a chain."""

    record: NDArray[np.int32]  # [n * 69] as `tree_growth.grow` writes it
    tokens: NDArray[np.int32]  # [n, 8]
    logprobs: NDArray[np.float32]  # [n, 8]

    @classmethod
    def of(cls, words: NDArray[np.int32], rows: int) -> "PassResult":
        """Return the views of one pass of `rows` rows."""
        first = rows * (ROW_WORDS - 2 * BRANCH)
        tokens, logprobs = words[first:].reshape(2, rows, BRANCH)
        return cls(words[:first], tokens, logprobs.view(np.float32))

    def top_children(self, query: ChildQuery) -> TopChildren:
        """Return the children of a query's outputs."""
        here = slice(len(query.positions)), slice(query.rules.branch)
        return TopChildren(self.tokens[here].copy(), self.logprobs[here].copy())


@dataclass(frozen=True, slots=True)
class Anticipated:
    """Result of a pass that the scheduler may request."""

    session: DraftSession
    rules: ChildRules
    """Rules of the requested pass of the chain."""
    table: NDArray[np.int32]
    """Block table of the requested pass."""
    result: PassResult

    def answers(self, part: DraftPart, rows: Rows) -> bool:
        """True if a launch of this part, all `rows` of a step, would give the same."""
        asked, own = part.query.rules, self.rules
        return (
            part.session is self.session
            and not asked.need_logits
            and asked.allowed is own.allowed
            and (asked.sampling, asked.error_scale) == (own.sampling, own.error_scale)
            and asked.branch <= BRANCH
            and self._has(rows)
        )

    def _has(self, rows: Rows) -> bool:
        """True if these are the rows that ran."""
        own = self.table
        return np.array_equal(rows.tables[0][: len(own)], own) and has_rows(
            self.result.record,
            len(self.result.tokens),
            *(rows.tokens, rows.positions, rows.slots, rows.prefix, rows.depth),
            *(rows.ancestors, rows.outputs),
        )


class ChainedPasses:
    """Passes of one session that have run ahead, and the launches that run them."""

    def __init__(
        self, model: GpuModel, staging: Staging, scoring: ChildScoring, passes: int
    ) -> None:
        """`passes` of a launch, 1 to 6; `staging` has the fields of `TREE`, the last of them."""
        if not 1 <= passes <= MAX_CHAINED:
            raise ValueError(f"chained: {passes} passes, wanted 1 to {MAX_CHAINED}")
        self.passes = passes
        self._model, self._staging, self._scoring = model, staging, scoring
        self._sizes = up_to(model.row_capacity)
        self._group_rows = group_rows(model.config.heads, model.config.kv_heads)
        most = min(MAX_GROWTH_ROWS, model.row_capacity)
        words = passes * most * ROW_WORDS
        self._results = results = torch.zeros(words, dtype=torch.int32, device=model.device)
        host = model.copies.host(words, dtype=torch.int32)
        self._fetched: Ints = host.numpy()
        self._prefixes = functools.cache(lambda words: (results[:words], host[:words]))
        """First words of the results, on the device and on the host, by their number."""
        self._growth = TreeGrowth(**{name: staging.device[name] for name in TREE})
        self._tree = handle(TreeFields(*(staging.host[name] for name in TreeFields._fields)))
        self._anticipated: list[Anticipated] = []

    def answer(self, part: DraftPart, rows: Rows) -> TopChildren | None:
        """Return the result of a pass that has run; None drops all that are anticipated.

        `rows` of a step whose only part this is.
        """
        if self._anticipated and self._anticipated[0].answers(part, rows):
            return self._anticipated.pop(0).result.top_children(part.query)
        self.drop()
        return None

    def drop(self) -> None:
        """Drop all results."""
        self._anticipated.clear()

    def length(self, part: DraftPart, max_new_nodes: int) -> int:
        """Return the passes worth launching for a part: 1 where nothing could follow."""
        limits, rules = part.session.limits, part.query.rules
        if not len(part.leaves) or rules.need_logits or rules.branch > BRANCH:
            return 1
        left = limits.nodes_ahead - len(part.session.tree)
        return max(1, min(self.passes, -(-left // max_new_nodes)))

    def width(self, part: DraftPart) -> int:
        """Return the rows of each pass after the first."""
        return bucket(self._most(part), self._sizes)

    def _most(self, part: DraftPart) -> int:
        return min(part.session.limits.width, MAX_WIDTH, LEAF_ROWS, self._model.row_capacity)

    def stage(self, part: DraftPart, max_new_nodes: int) -> None:
        """Write a session's tree as it will be while the part's rows run; does not send it."""
        session = part.session
        tree, limits = session.tree, session.limits
        candidates = write_tree(self._tree, tree.compiled, part.leaves, part.offsets)
        self._staging.host["header"][:] = Header(
            nodes=len(tree),
            candidates=candidates,
            rows=len(part.leaves),
            root=tree.root_position,
            width=self._most(part),
            depth=min(limits.depth, DEEPEST + 1),
            nodes_ahead=min(limits.nodes_ahead, 1 << 30),
            max_new_nodes=max_new_nodes,
            room=session.block_table.room,
            depth_bonus=int(np.float32(session.depth_bonus).view(np.int32)),
        )

    def launch(self, width: int, passes: int, variant: ScoreVariant) -> None:
        """Find the children of the pass whose body has run, then run the others.

        The first pass has fewer outputs than `width` at times: what the others' settings bring is
        not read. Call where launches belong.
        """
        inputs, forward = self._model.inputs, self._model.forward_pass
        d, places = inputs.device, self._places(width, passes)
        groups = group_bucket(-(-width // self._group_rows), width)
        sampled_at = self._staging.device["sampled_at"]
        context = inputs.context(width, groups)
        rows = NextRows(d["tokens"], d["positions"], d["slots"], sampled_at, d["outputs"], context)
        for number, (_, tokens, logprobs) in enumerate(places):
            self._scoring.launch(width, variant, tokens, logprobs)
            if number + 1 < passes:
                record = places[number + 1][0]
                grow(self._growth, tokens, logprobs, rows, record, self._group_rows)
                forward.body(width, groups)

    def fetch(self, step: DraftBatch, width: int, passes: int) -> TopChildren:
        """Wait for the results, keep those of all passes but the first, and return that one's."""
        (part,) = step.parts
        words = passes * width * ROW_WORDS
        self._model.copies.fetch(*self._prefixes(words))
        self._model.copies.wait()
        held = self._fetched[:words].copy().reshape(passes, -1)
        first, *others = (PassResult.of(words, width) for words in held)
        rules, table = part.query.rules, step.rows.tables[0]
        self._anticipated = [Anticipated(part.session, rules, table, one) for one in others]
        return first.top_children(part.query)

    def _places(self, width: int, passes: int) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Return record, tokens and log-probabilities of each pass on the device."""
        size = width * ROW_WORDS
        found = []
        for words in self._results[: passes * size].view(passes, size):
            record = words[: size - 2 * width * BRANCH]
            tokens, logprobs = words[len(record) :].view(2, width, BRANCH)
            found.append((record, tokens, logprobs.view(torch.float32)))
        return found


@njit()
def has_rows(
    record: Ints,
    width: int,
    tokens: Ints,
    positions: Ints,
    slots: Ints,
    prefix: Ints,
    depth: Ints,
    ancestors: Ints,
    outputs: Ints,
) -> bool:
    """True if a record, of `width` rows with padding, is that of a pass of the given `Rows`."""
    count, deepest = ancestors.shape
    columns = record[: COLUMN_COUNT * width].reshape(COLUMN_COUNT, width)
    paths = record[COLUMN_COUNT * width :].reshape(width, DEEPEST)
    if count != (columns[2] >= 0).sum() or count != outputs.shape[0] or deepest > DEEPEST:
        return False
    for row in range(count):
        given = (tokens[row], positions[row], slots[row], prefix[row], depth[row])
        for column in range(COLUMN_COUNT):
            if given[column] != columns[column, row]:
                return False
        for level in range(depth[row]):
            if ancestors[row, level] != paths[row, level]:
                return False
        if outputs[row] != row:
            return False
    return True


@njit()
def write_tree(
    fields: Handle[TreeFields], tree: Handle[DraftTables], leaves: Ints, offsets: Ints
) -> int:
    """Write a tree as it will be while rows of `leaves`, whose KV is at `offsets`, run; return the
    number of its candidates."""
    to, nodes, candidates = fields.value, tree.value.nodes, tree.value.candidates
    count, offered = tree.value.state[draft_table.NODES], tree.value.state[draft_table.CANDIDATES]
    to.parent[:count], to.token[:count] = nodes.parent[:count], nodes.token[:count]
    to.depth[:count], to.slot[:count] = nodes.depth[:count], nodes.slot[:count]
    to.score[:count] = nodes.score[:count]
    to.candidate_parent[:offered] = candidates.parent[:offered]
    to.candidate_token[:offered] = candidates.token[:offered]
    to.candidate_score[:offered] = candidates.score[:offered]
    to.leaves[: leaves.shape[0]] = leaves
    if leaves[0] != ROOT:
        to.slot[leaves] = offsets
    return int(offered)
