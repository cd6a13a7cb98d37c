"""Search for draft tokens by local sources: on what terms, and in which step.

Leaves whether a source may run to `speculation/local_sources`, what it finds to `tree_pass`.
"""

from outrider.contract.settings import PolicySettings
from outrider.worker.speculation.local_sources import LocalSources
from outrider.worker.target.sequence import Sequence
from outrider.worker.target.tree_pass import search


def depth_of(sequence: Sequence, policy: PolicySettings) -> int:
    """Return how deep a node of a sequence may lie for its row to add a token."""
    return min(policy.depth, sequence.most_tokens - sequence.length - 1)


def search_text(sequence: Sequence, local: LocalSources, policy: PolicySettings) -> None:
    """Let local sources add to a sequence's tree what may follow its root, if they may."""
    sequence.searched = sequence.length
    on = local.on & sequence.sources
    if on and sequence.length > sequence.prompt_length:
        search(sequence.tree, on, policy.max_rows, depth_of(sequence, policy))
        sequence.unjudged = True
