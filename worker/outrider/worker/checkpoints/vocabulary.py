"""Vocabularies: the bytes of each token id, and the comparison of two tokenizers by them.

Leaves tokenizing to `outrider.worker.api.text`, and Hello to `link.handshake` (architecture.md,
Link).
"""

import hashlib
import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.errors import ModelError, PairRefused
from outrider.worker.host.disk_cache import found_of

MEMO = "vocabulary.json"
BYTES = "latin-1"
"""Encoding that has a character for each byte."""
MAX_BYTES = 16 << 20
"""Most bytes of the tokens of a peer's vocabulary, with their lengths."""
LENGTH_BYTES = 4
VOCABULARY_BLOCK = 64
"""Token ids that share one hash."""
MIN_AGREEMENT = 0.99
"""Share of the draft's outputs below which it translates."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of a draft's tokenizer with the target's."""

    share: float
    """Share of the draft's possible output ids whose blocks agree."""
    agreed: NDArray[np.bool_]
    """[the target's blocks] False masks the ids of a block."""

    @property
    def is_same(self) -> bool:
        """True if the two have one tokenizer: ids are used as they are."""
        return self.share >= MIN_AGREEMENT

    def allowed(self, size: int) -> NDArray[np.bool_]:
        """Return bool[size], the target's ids that the draft may propose."""
        ids = np.repeat(self.agreed, VOCABULARY_BLOCK)[:size]
        return np.concatenate([ids, np.zeros(size - len(ids), np.bool_)])


def read(prepared: PreparedModel) -> list[bytes]:
    """Return `token_bytes` of a model's tokenizer, remembered in its cache; raises `ModelError`."""
    folder = prepared.tokenizer

    def find() -> list[str]:
        return [token.decode(BYTES) for token in token_bytes(load_tokenizer(folder))]

    known = found_of([folder / "tokenizer.json"], prepared.cache / MEMO, find)
    return [token.encode(BYTES) for token in known]


def begin(prepared: PreparedModel) -> list[int]:
    """Return the ids that a model's tokenizer puts before every text; raises `ModelError`."""
    ids: list[int] = load_tokenizer(prepared.tokenizer).encode("").ids
    return ids


def load_tokenizer(directory: Path) -> Tokenizer:
    """Load the tokenizer of a prepared folder; raises `ModelError`."""
    path = directory / "tokenizer.json"
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the binding raises nothing narrower
        raise ModelError(f"{path}: {error}") from error


def token_bytes(tokenizer: Tokenizer) -> list[bytes]:
    """Return the bytes that each id adds to a text, by id; empty for ids that name no token.

    Byte-level tokenizers (GPT-2's alphabet of bytes) and SentencePiece's (▁ for a space, <0x0A> for
    a byte) are understood, others raise `ModelError`. Added tokens stand for their own content.
    """
    kinds = {str(part.get("type")) for part in decoder_parts(tokenizer)}
    byte_level = "ByteLevel" in kinds
    if not byte_level and not kinds & {"Metaspace", "Replace"}:
        raise ModelError(f"tokenizer decoder {sorted(kinds)}: neither byte-level nor SentencePiece")
    alphabet = _byte_alphabet()
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    tokens = [b""] * (max(vocabulary.values(), default=-1) + 1)
    for text, token in vocabulary.items():
        tokens[token] = _from_alphabet(text, alphabet) if byte_level else _from_metaspace(text)
    for token, added in tokenizer.get_added_tokens_decoder().items():
        tokens[token] = added.content.encode()
    return tokens


def decoder_parts(tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Return the steps of a tokenizer's decoder, as tokenizer.json writes them."""
    found: Any = json.loads(tokenizer.to_str()).get("decoder") or {}
    parts: list[dict[str, Any]] = found.get("decoders", [found])
    return parts


def packed(tokens: Iterable[bytes]) -> bytes:
    """Compress tokens, each with its length before it."""
    return zlib.compress(b"".join(map(_with_length, tokens)))


def unpacked(data: bytes) -> list[bytes]:
    """Return the tokens that were `packed`; raise `ValueError` for bytes that are no such."""
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(data, MAX_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not unpacker.eof:
        raise ValueError(f"more than {MAX_BYTES} bytes, or an end that is missing")
    tokens, at = [], 0
    while at < len(text):
        begin = at + LENGTH_BYTES
        at = begin + int.from_bytes(text[begin - LENGTH_BYTES : begin], "little")
        tokens.append(text[begin:at])
    if at != len(text):
        raise ValueError("a token ends behind the end")
    return tokens


def block_hashes(tokens: Sequence[bytes]) -> NDArray[np.uint64]:
    """Hash [blocks] by blake2b of 8 bytes over a block's tokens, each with its length before it.

    The last block may be short. Trailing ids that name no token are padding and do not count.
    """
    size = max((i + 1 for i, token in enumerate(tokens) if token), default=0)
    starts = range(0, size, VOCABULARY_BLOCK)
    blocks = (tokens[start : min(start + VOCABULARY_BLOCK, size)] for start in starts)
    return np.array([_block_hash(block) for block in blocks], dtype=np.uint64)


def outputs_by_block(output_ids: Sequence[int] | None, size: int) -> tuple[int, ...]:
    """Return how many ids of each block of a vocabulary a draft can output; empty means all."""
    if output_ids is None:
        return ()
    ids = np.asarray(output_ids, np.int64)
    counts = np.bincount(
        ids[ids < size] // VOCABULARY_BLOCK, minlength=-(-size // VOCABULARY_BLOCK)
    )
    return tuple(counts.tolist())


def agreement(
    target_hashes: NDArray[np.uint64],
    draft_hashes: NDArray[np.uint64],
    draft_outputs: NDArray[np.int64] | None,
) -> Agreement:
    """Compare what two Hellos say; nothing in either is trusted.

    `draft_outputs` is the draft's `outputs_by_block`; None means every id of its every block.
    Blocks that one side lacks do not agree. Raises `PairRefused` for outputs that cannot be.
    """
    outputs = _checked_outputs(len(draft_hashes), draft_outputs)
    shared = min(len(target_hashes), len(draft_hashes))
    agreed = np.zeros(len(target_hashes), dtype=np.bool_)
    agreed[:shared] = target_hashes[:shared] == draft_hashes[:shared]
    total = int(outputs.sum())
    share = int(outputs[:shared][agreed[:shared]].sum()) / total if total else 0.0
    return Agreement(share, agreed)


def _checked_outputs(blocks: int, outputs: NDArray[np.int64] | None) -> NDArray[np.int64]:
    if outputs is None:
        return np.full(blocks, VOCABULARY_BLOCK, dtype=np.int64)
    if len(outputs) != blocks:
        raise PairRefused(f"the draft gives {len(outputs)} output counts for {blocks} hashes")
    odd = outputs[(outputs < 0) | (outputs > VOCABULARY_BLOCK)]
    if len(odd):
        raise PairRefused(f"the draft claims {odd[0]} outputs in a block of {VOCABULARY_BLOCK}")
    return outputs


def _block_hash(tokens: Iterable[bytes]) -> int:
    digest = hashlib.blake2b(digest_size=8)
    for token in tokens:
        digest.update(_with_length(token))
    return int.from_bytes(digest.digest(), "little")


def _with_length(token: bytes) -> bytes:
    return len(token).to_bytes(LENGTH_BYTES, "little") + token


def _byte_alphabet() -> dict[str, int]:
    """Return GPT-2's character → byte: itself where that prints, else the next from U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    moved = [byte for byte in range(256) if byte not in printable]
    stand_ins = {chr(256 + i): byte for i, byte in enumerate(moved)}
    return {chr(byte): byte for byte in printable} | stand_ins


def _from_alphabet(text: str, alphabet: dict[str, int]) -> bytes:
    """Decode a token; one with other characters stands for itself, as in `tokenizers`."""
    try:
        return bytes([alphabet[character] for character in text])
    except KeyError:
        return text.encode()


def _from_metaspace(text: str) -> bytes:
    if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
        return bytes([int(text[3:5], 16)])
    return text.replace("\u2581", " ").encode()
