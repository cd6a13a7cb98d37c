"""The language of a simulated pair: the next token of every context, and what a draft thinks of it.

A context is a hash of all its tokens. From it follow the token that the target takes and the
children that the draft proposes, so both see one language and the text does not depend on drafts.
Leaves where hashes are kept to `kv`, and passes to `runners`.

How likely the draft's first child is right varies: by passage of the text (easy and hard ones) and
by token. With z standard normal, its probability is p = sigmoid(mean + spread * z), the second
child gets `second` of what is left, the third as much of what is left then, and so on; the target
takes the children with these very probabilities. So the draft is calibrated: it is as sure as it
is right.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.jit.compiled import njit
from outrider.worker.kv.block_pool import BLOCK

Hash = np.uint64
Hashes = NDArray[np.uint64]
Ints = NDArray[np.int32]
Floats = NDArray[np.float32]

STRIDE = 97
"""Distance between the token ids of two children of one context; no vocabulary is smaller than
all."""
QUADRATURE = 64
"""Points of the mean over z."""
_BELOW_2_TO_53 = 1.0 / (1 << 53)


class Contexts(NamedTuple):
    """Contexts by the slot of their last token, as KV has them."""

    hashes: Hashes
    passages: Hashes
    """Hash of the context with which the passage of each began."""


class RowArrays(NamedTuple):
    """What of `worker.model.rows.Rows` says which context each row extends."""

    tokens: Ints
    positions: Ints
    slots: Ints
    sequence: Ints
    prefix: Ints
    ancestors: Ints
    depth: Ints
    tables: Ints


class Pair(NamedTuple):
    """How well a draft knows its target's text."""

    vocabulary: int
    mean: float
    """Mean of the logit of the first child's probability."""
    spread: float
    """Deviation of that logit."""
    passage_share: float
    """Share of the logit's variance that a whole passage has in common; 0 to 1."""
    second: float
    """Share of what the first child leaves that the second one gets; 0 to 1."""
    passage_tokens: int
    """Tokens of a passage that is as easy or as hard as a whole."""

    @classmethod
    def of(cls, vocabulary: int, hit_rate: float, spread: float, second: float,
           passage_share: float = 0.5, passage_tokens: int = 32) -> "Pair":  # fmt: skip
        """Return a pair whose likeliest child is right with the mean probability `hit_rate`.

        Raises `ValueError` where the second child alone is right more often.
        """
        low, high = -12.0, 12.0
        if (
            not mean_hit_rate(low, spread, second)
            <= hit_rate
            <= mean_hit_rate(high, spread, second)
        ):
            raise ValueError(f"a hit rate of {hit_rate} cannot be had with a second of {second}")
        for _ in range(60):
            middle = (low + high) / 2
            below = mean_hit_rate(middle, spread, second) < hit_rate
            low, high = (middle, high) if below else (low, middle)
        return cls(vocabulary, (low + high) / 2, spread, passage_share, second, passage_tokens)


POINTS, WEIGHTS = np.polynomial.hermite_e.hermegauss(QUADRATURE)


def mean_hit_rate(mean: float, spread: float, second: float) -> float:
    """Return how often the likelier of the first two children is right."""
    first = 1 / (1 + np.exp(-(mean + spread * POINTS)))
    likelier = np.maximum(first, second * (1 - first))
    return float((WEIGHTS * likelier).sum() / math.sqrt(2 * math.pi))


@njit()
def mixed(value: Hash) -> Hash:
    """Return 64 bits that look random and follow from `value` (splitmix64's finalizer)."""
    bits = value + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@njit()
def uniform(context: Hash, purpose: int) -> float:
    """Return a number above 0 and below 1 of a context, another one for each purpose."""
    bits = mixed(context ^ (np.uint64(purpose) * np.uint64(0xD6E8FEB86659FD93)))
    return (float(bits >> np.uint64(11)) + 0.5) * _BELOW_2_TO_53


@njit()
def normal(context: Hash, purpose: int) -> float:
    """Return a standard normal number of a context (Box and Muller)."""
    radius = math.sqrt(-2.0 * math.log(uniform(context, purpose)))
    return radius * math.cos(2.0 * math.pi * uniform(context, purpose + 1))


@njit()
def first_probability(context: Hash, passage: Hash, pair: Pair) -> float:
    """Return the probability of a context's first child."""
    own = math.sqrt(1.0 - pair.passage_share) * normal(context, 1)
    shared = math.sqrt(pair.passage_share) * normal(passage, 3)
    return 1.0 / (1.0 + math.exp(-(pair.mean + pair.spread * (own + shared))))


@njit()
def child_token(context: Hash, rank: int, vocabulary: int) -> int:
    """Return the token of a context's child; those of different ranks differ."""
    first = np.int64(mixed(context) % np.uint64(vocabulary))
    return int((first + rank * STRIDE) % vocabulary)


@njit()
def extend(contexts: Contexts, rows: RowArrays, passage_tokens: int) -> None:
    """Write the contexts that end with each row's token to its slot.

    The one before is older, or that of a row before.
    """
    hashes, passages = contexts
    for row in range(rows.tokens.shape[0]):
        offset, depth = rows.prefix[row] - 1, rows.depth[row]
        if depth == 0:
            offset -= 1
        elif depth >= 2:
            offset = rows.ancestors[row, depth - 2]
        before, passage = np.uint64(0), np.uint64(0)
        if offset >= 0:
            block = rows.tables[rows.sequence[row], offset // BLOCK]
            slot = block * BLOCK + offset % BLOCK
            before, passage = hashes[slot], passages[slot]
        after = mixed(before ^ (np.uint64(rows.tokens[row]) * np.uint64(0xA24BAED4963EE407)))
        hashes[rows.slots[row]] = after
        begins = rows.positions[row] % passage_tokens == 0
        passages[rows.slots[row]] = after if begins else passage


@njit()
def target_tokens(contexts: Contexts, slots: Ints, pair: Pair) -> Ints:
    """Return the token that the target takes after the context of each slot."""
    hashes, passages = contexts
    taken = np.empty(slots.shape[0], np.int32)
    for at in range(slots.shape[0]):
        context = hashes[slots[at]]
        left = uniform(context, 5)
        share = first_probability(context, passages[slots[at]], pair)
        rank, rest = 0, 1.0 - share
        while left > share and rest > 1e-9:
            left -= share
            share = rest * pair.second
            rest -= share
            rank += 1
        taken[at] = child_token(context, rank, pair.vocabulary)
    return taken


@njit()
def draft_children(contexts: Contexts, slots: Ints, pair: Pair, branch: int) -> tuple[Ints, Floats]:
    """Return the tokens and log-probabilities [slots, branch] of the draft's first children."""
    hashes, passages = contexts
    tokens = np.empty((slots.shape[0], branch), np.int32)
    logprobs = np.empty((slots.shape[0], branch), np.float32)
    for at in range(slots.shape[0]):
        context = hashes[slots[at]]
        share = first_probability(context, passages[slots[at]], pair)
        rest = 1.0 - share
        for rank in range(branch):
            tokens[at, rank] = child_token(context, rank, pair.vocabulary)
            logprobs[at, rank] = math.log(max(share, 1e-12))
            share = rest * pair.second
            rest -= share
    return tokens, logprobs
