"""Batches of a target: verify rows and prefill chunks of several sequences, run in one pass.

Leaves which sequences run to `target/scheduler`, and which nodes to `target/selection`.
"""

from typing import NamedTuple

from outrider.worker.model.rows import Rows, joined, prompt_rows
from outrider.worker.sampling.logits_processor import LogitsProcessor, path_tokens
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.target.pass_costs import PlainCost
from outrider.worker.target.selection import NO_NODES, Selection
from outrider.worker.target.sequence import Sequence
from outrider.worker.target.stats import StepRecord
from outrider.worker.target.tree_pass import write_rows
from outrider.worker.tree.growth import Ints
from outrider.worker.tree.walk import Paths, paths

NO_TOKEN = -1


class TargetPart(NamedTuple):
    """One sequence's rows in a batch: its root and nodes, or a prefill chunk."""

    sequence: Sequence
    rows: Rows
    nodes: Ints
    """Nodes among the rows, by their index in the mirror, int32[rows]."""
    live: int = 0
    """Nodes of the mirror as they were selected."""
    first_token: int = NO_TOKEN
    """Likeliest token after the root, if its node is among the rows; else `NO_TOKEN`."""
    in_session: bool = False
    """True if a draft had a session for it as the pass began; it may have ended since."""

    @classmethod
    def prefill(cls, sequence: Sequence, limit: int) -> "TargetPart":
        """Take the next prefill chunk, at most `limit` rows; the last chunk ends with the root.

        What the vendor's library computes goes in chunks of its own.
        """
        start, chunk = sequence.computed, sequence.chunk
        end = min(start + min(limit, chunk or limit), sequence.length)
        last = end == sequence.length
        rows = prompt_rows(sequence.tokens[start:end], start, sequence.kv, last, chunk > 0)
        return cls(sequence, rows, NO_NODES)

    @classmethod
    def verify(cls, sequence: Sequence, nodes: Ints) -> "TargetPart":
        """Take the root and the selected nodes, without those that the grammar forbids."""
        kept = nodes if sequence.logits_processor is None else allowed_nodes(sequence, nodes)
        rows, first_token = verify_rows(sequence, kept), NO_TOKEN
        if len(kept) > 0 and (kept is nodes or kept[0] == nodes[0]):
            first_token = rows.tokens.item(1)  # the likeliest candidate stands after the root
        in_session = sequence.session is not None
        return cls(sequence, rows, kept, len(sequence.mirror), first_token, in_session)

    @property
    def sampling(self) -> SamplingParams:
        """Sampling params of the request."""
        return self.sequence.submit.sampling

    @property
    def logits_processor(self) -> LogitsProcessor | None:
        """The sequence's penalties, logit bias and grammar; None if it has none."""
        return self.sequence.logits_processor

    @property
    def logits_wanted(self) -> bool:
        """True if the request asks for log-probabilities of its tokens."""
        return self.sequence.submit.logprobs is not None

    @property
    def path_tokens(self) -> Ints:
        """[outputs, deepest] each row's tokens after the root, for the logits processor."""
        mirror = self.sequence.mirror
        return path_tokens(paths_of(self.sequence, self.nodes), mirror.token[self.nodes])


def verify_rows(sequence: Sequence, nodes: Ints) -> Rows:
    """Build the rows of a verify pass: row 0 is the root, the selected nodes follow in order.

    They are valid until the sequence's next pass.
    """
    count, root, block_table = len(nodes) + 1, sequence.position, sequence.kv
    table = block_table.table
    block_table.check_writable(root, root + count - 1)
    write_rows(sequence.tree, nodes, table)
    return sequence.views.rows(count, table)


def allowed_nodes(sequence: Sequence, nodes: Ints) -> Ints:
    """Return the nodes that may be sampled at all by the sequence's grammar."""
    if sequence.logits_processor is None or len(nodes) == 0:
        return nodes
    tokens = sequence.mirror.token[nodes]
    allowed = sequence.logits_processor.allowed(paths_of(sequence, nodes), tokens)
    return nodes if allowed is None else nodes[allowed]


def paths_of(sequence: Sequence, nodes: Ints) -> Paths:
    """Return the places of selected nodes in the sequence's tree."""
    return paths(sequence.mirror.parent, sequence.mirror.depth, nodes)


class TargetBatch(NamedTuple):
    """Rows of one pass, or of one beside chunks by the vendor's library."""

    parts: tuple[TargetPart, ...]
    """Parts that decode, then those that prefill."""
    rows: Rows
    """Rows of all parts, in their order."""
    decoding_count: int
    expected_seconds: float
    """Expected seconds of the pass, by the step costs."""
    plain: PlainCost
    """Cost of the step without nodes."""
    started: float

    @classmethod
    def of(
        cls, decode: list[TargetPart], prefill: list[TargetPart], selection: Selection, now: float
    ) -> "TargetBatch":
        """Join the rows of all parts; the times are those of `selection`."""
        parts = (*decode, *prefill)
        return cls(
            parts=parts,
            rows=joined([part.rows for part in parts]),
            decoding_count=len(decode),
            expected_seconds=selection.expected_seconds,
            plain=selection.plain,
            started=now,
        )

    @property
    def record(self) -> StepRecord:
        """What it runs."""
        decoding, rows = self.parts[: self.decoding_count], self.rows.count
        expected, prefill_rows = self.expected_seconds, self.prefill_rows
        return StepRecord(
            decoding, rows, prefill_rows, expected, self.plain, self.started, self.by_library
        )

    @property
    def prefill_rows(self) -> int:
        """Rows of prefill chunks."""
        return sum([part.rows.count for part in self.parts[self.decoding_count :]])

    @property
    def by_library(self) -> bool:
        """True if the vendor's library runs a chunk of it."""
        return any([part.rows.by_library for part in self.parts[self.decoding_count :]])
