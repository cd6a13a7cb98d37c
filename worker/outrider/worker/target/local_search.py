"""Search for draft tokens by local sources: on what terms, and in which step.

Leaves whether a source may run to `speculation/local_sources`, what it finds to `tree_pass`.
"""

import numpy as np

from outrider.contract.settings import PolicySettings
from outrider.worker.speculation.local_sources import LocalSources
from outrider.worker.target.reading import read_on
from outrider.worker.target.sequence import Sequence
from outrider.worker.target.tree_pass import Hunt, SearchLimits, search

NO_HUNT = Hunt(SearchLimits(0, 0), 0, np.zeros(1), 0.0)
"""Of a sequence without local sources."""


def limits_of(sequence: Sequence, local: LocalSources, policy: PolicySettings) -> SearchLimits:
    """Return how much local sources may add to a sequence's tree now."""
    on = sequence.submit.speculate and local.on
    depth = max(0, min(policy.depth, sequence.remaining - 1))
    return SearchLimits(policy.max_rows if on else 0, depth)


def search_text(sequence: Sequence, local: LocalSources, policy: PolicySettings) -> None:
    """Let local sources add to a sequence's tree, if they may and have read its text.

    Once for each root: a serial draft's step is planned anew before each of the draft's passes.
    """
    if sequence.searched == sequence.length:
        return
    if sequence.length > sequence.prompt_length and read_on(sequence, sequence.length):
        sequence.searched = sequence.length
        search(sequence.tree, limits_of(sequence, local, policy))
