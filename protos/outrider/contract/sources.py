"""Sources of draft tokens: what may propose the nodes that a target verifies.

Knows nothing of how they find them.
"""

import enum
from collections.abc import Sequence


class SourceKind(enum.StrEnum):
    """What proposes draft tokens.

    DRAFT is the draft model. SUFFIX is the text itself: what followed where its end has occurred
    before, in prompt or answer; it costs no pass of any model. ANSWERS is what followed in earlier
    answers to requests with the same API key, finished or broken off; a target on loopback without
    keys keeps them for all its callers, another one without keys keeps none. PREDICTION is the
    answer that a request says it expects; no policy names it.
    """

    DRAFT = "draft"
    SUFFIX = "suffix"
    ANSWERS = "answers"
    PREDICTION = "prediction"


SOURCES = tuple(SourceKind)
"""In the order of `Counters.source_rows`, and of the numbers of mirrors' proposers."""
POLICY_SOURCES = tuple(kind for kind in SOURCES if kind is not SourceKind.PREDICTION)
"""Sources that a policy may name."""


def source_problem(sources: Sequence[SourceKind]) -> str:
    """Return what is wrong with a list of sources; empty if nothing is."""
    if not sources:
        return "no source: name one or more; for plain decoding set speculate to false"
    if SourceKind.PREDICTION in sources:
        named = ", ".join(kind.value for kind in POLICY_SOURCES)
        return f"a prediction comes with its request: name some of {named}"
    twice = [kind.value for kind in SourceKind if sources.count(kind) > 1]
    return f"{twice[0]} is named twice" if twice else ""
