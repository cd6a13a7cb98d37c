"""The rows of a target's pass: prompt chunks, and roots with the nodes that were chosen for them.

Who is in a pass is `target_scheduler`'s to say, which nodes `choosing`'s.
"""

import numpy as np

from outrider.worker.model.rows import Rows, prompt_rows, tree_rows
from outrider.worker.target.batch import TargetPart
from outrider.worker.target.selection import SelectedRows, pruned
from outrider.worker.target.sequence import Sequence

ZERO = np.zeros(1, np.int32)


def chunk_rows(sequence: Sequence, most: int) -> Rows:
    """The next chunk of a prompt; the last one ends with the root and draws a token."""
    end = min(sequence.computed + most, sequence.length)
    tokens = sequence.tokens[sequence.computed : end]
    last = end == sequence.length
    return prompt_rows(tokens, sequence.computed, sequence.kv, wants_output=last)


def verified_part(sequence: Sequence, chosen: SelectedRows) -> TargetPart:
    """A verify pass of one sequence, without nodes that the form of the answer forbids."""
    if sequence.logits_processor is not None and len(chosen.nodes) > 0:
        allowed = sequence.logits_processor.allowed(chosen.paths, chosen.tokens)
        if allowed is not None:
            chosen = pruned(chosen, allowed, sequence)
    return TargetPart(sequence, verify_rows(sequence, chosen), chosen)


def verify_rows(sequence: Sequence, chosen: SelectedRows) -> Rows:
    """Row 0 is the root; the chosen nodes lie behind it, in order."""
    root = sequence.position
    if len(chosen.nodes) == 0:
        return prompt_rows(sequence.tokens[root : root + 1], root, sequence.kv, wants_output=True)
    paths = chosen.paths
    ancestors = np.zeros((len(chosen.nodes) + 1, max(1, paths.ancestors.shape[1])), np.int32)
    ancestors[1:, : paths.ancestors.shape[1]] = paths.ancestors + np.int32(root + 1)
    depth = np.concatenate([ZERO, paths.depth])
    return tree_rows(
        tokens=np.concatenate([sequence.tokens[root : root + 1], chosen.tokens]),
        positions=depth + np.int32(root),
        offsets=np.arange(root, root + len(depth), dtype=np.int32),
        block_table=sequence.kv,
        prefix=np.full(len(depth), root + 1, np.int32),
        ancestors=ancestors,
        depth=depth,
    )
