"""Translation between a target's token ids and those of a draft with another tokenizer.

By the bytes that each id stands for: tokens that both have are proposed and read as they are; what
only the target has is read as the longest tokens of the draft that spell it, and proposed where two
of those, which both have, follow each other in the draft's tree. vLLM's token-level intersection
(#38174) does neither: there such a token is unknown to the draft.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outrider.worker.checkpoints import vocabulary
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.errors import ModelError, PairRefused
from outrider.worker.tree.growth import Ids, Ints
from outrider.worker.tree.reading import Reading

MIN_SHARED = 0.1
"""Share of the smaller vocabulary's tokens that both have, below which a pair is refused."""
LONGEST = 16
"""Most ids by which a token is read: of a longer one the last."""
NONE = -1
"""In place of the target's id of a token that it does not have."""
ALL_BYTES = [bytes([byte]) for byte in range(256)]


@dataclass(frozen=True, slots=True, eq=False)
class Translation:
    """What a draft needs to draft for a target of another tokenizer."""

    target_ids: Ints
    """The target's id of each draft token, int32[the draft's tokens]; `NONE`: it has none."""
    allowed: NDArray[np.bool_]
    """[the target's tokens] ids that the draft may propose."""
    reading: Reading
    begin: Ints
    """The draft's ids before every text, such as Gemma's <bos>, int32[few]."""

    def begun(self, ids: Ints) -> Ints:
        """Return a text in the draft's ids as the draft's tokenizer begins it."""
        if np.array_equal(ids[: len(self.begin)], self.begin):
            return ids
        return np.concatenate([self.begin, ids])

    def equals(self, other: "Translation") -> bool:
        """Return True for a translation of the same tokens."""
        parts = zip(self._parts, other._parts, strict=True)
        return all(np.array_equal(one, two) for one, two in parts)

    @property
    def _parts(self) -> tuple[Ints | Ids | int, ...]:
        return self.target_ids, self.begin, *self.reading

    @property
    def share(self) -> float:
        """Share of the draft's tokens that the target has too."""
        return float(np.mean(self.target_ids != NONE))


class TargetTokens(NamedTuple):
    """Tokens of a target, as a draft of it sees them."""

    allowed: NDArray[np.bool_]
    """[the target's tokens] ids that may be draft tokens."""
    translation: Translation | None = None
    """None: the draft has the same tokenizer."""


def tokens_for(target: PreparedModel, draft: PreparedModel, size: int) -> TargetTokens:
    """Return the first `size` tokens of a target, as a draft in the same process sees them.

    Raises `ModelError` and `PairRefused`.
    """
    tokens = draft_tokens = vocabulary.read(target)
    hashes = draft_hashes = vocabulary.block_hashes(tokens)
    config = draft.config()
    if draft.tokenizer != target.tokenizer:  # else it is borrowed: one map, read and hashed once
        try:
            draft_tokens = vocabulary.read(draft)
        except ModelError as error:
            raise PairRefused(f"the draft's tokens cannot be read: {error}") from None
        draft_hashes = vocabulary.block_hashes(draft_tokens)
    outputs = vocabulary.outputs_by_block(config.output_ids, len(draft_tokens))
    counts = np.array(outputs, np.int64) if outputs else None
    found = vocabulary.agreement(hashes, draft_hashes, counts)
    if found.is_same:
        return TargetTokens(found.allowed(size))
    made = translation(tokens[:size], draft_tokens, config.vocab, vocabulary.begin(draft))
    return TargetTokens(made.allowed, made)


def translation(
    target: Sequence[bytes], draft: Sequence[bytes], known: int, begin: Sequence[int] = ()
) -> Translation:
    """Return the translation between two vocabularies, given as the bytes of each id.

    `known`: ids that the draft's model can read; `begin`: those before every text. Raises
    `PairRefused` where too few tokens are in both.
    """
    draft = draft[:known]
    own, ids = ids_by_bytes(draft), ids_by_bytes(target)
    target_ids, allowed = np.full(len(draft), NONE, np.int32), np.zeros(len(target), np.bool_)
    shared = own.keys() & ids.keys()
    for token in shared:
        target_ids[own[token]] = ids[token]
        allowed[ids[token]] = True
    smaller = min(len(own), len(ids))
    if len(shared) < MIN_SHARED * smaller or not shared:
        raise PairRefused(
            f"the draft's tokenizer is not the target's, and {len(shared)} tokens are in both; "
            f"{100 * MIN_SHARED:.0f} % of the smaller one's {smaller} are needed"
        )
    longest = max(map(len, own))
    read = [spelled(token, own, longest)[-LONGEST:] or [known - 1] for token in target]
    pairs = dict(_pairs(ids, draft, read, target_ids))
    allowed[list(pairs.values())] = True
    first = np.array([one for one in begin if one < known], np.int32)
    return Translation(target_ids, allowed, _reading(read, pairs, known), first)


def ids_by_bytes(tokens: Sequence[bytes]) -> dict[bytes, int]:
    """Return ids by their bytes; of several, one that texts have.

    SentencePiece's tokens of single bytes, which lie in a row, stand for what has no other token:
    in Gemma's vocabulary the token of a line break lies before them, those of letters behind.
    """
    ids = {token: number for number, token in enumerate(tokens) if token}
    zeros = (number for number, token in enumerate(tokens) if token == ALL_BYTES[0])
    row = next((at for at in zeros if [*tokens[at : at + 256]] == ALL_BYTES), 0)
    return ids | {token: number for number, token in enumerate(tokens[:row]) if token}


def _pairs(
    target: Mapping[bytes, int],
    draft: Sequence[bytes],
    read: Sequence[Sequence[int]],
    target_ids: Ints,
) -> Iterator[tuple[int, int]]:
    """Yield each token that is read as two of the draft that both have, by these: the target's ids
    of the two, as `Reading.pairs`. `target`: its ids by their bytes."""
    for token, number in target.items():
        if len(read[number]) == 2 and b"".join(draft[one] for one in read[number]) == token:
            first, second = target_ids[read[number]].tolist()
            if first != NONE != second:
                yield first << 32 | second, number


def _reading(read: Sequence[Sequence[int]], pairs: Mapping[int, int], known: int) -> Reading:
    """Return how a draft reads the target's tokens, `read` by their ids, in arrays."""
    first = np.zeros(len(read) + 1, np.int32)
    np.cumsum([len(ids) for ids in read], out=first[1:])
    flat = np.array([one for ids in read for one in ids], np.int32)
    keys = np.array(sorted(pairs), np.int64)
    merged = np.array([pairs[key] for key in keys.tolist()], np.int32)
    return Reading(first, flat, known, max(map(len, read)), keys, merged)


def spelled(token: bytes, own: Mapping[bytes, int], longest: int) -> list[int]:
    """Return ids whose bytes make up a token, the longest first that fit; bytes that no id begins
    with are left out. `longest`: bytes of an id."""
    whole = own.get(token)
    if whole is not None:
        return [whole]
    ids, at = [], 0
    while at < len(token):
        ends = range(min(len(token), at + longest), at, -1)
        found = next((end for end in ends if token[at:end] in own), None)
        if found is None:
            at += 1
            continue
        ids.append(own[token[at:found]])
        at = found
    return ids
