"""What ids stand for, and when two tokenizers agree."""

import os
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, processors

from outrider.worker.checkpoints import vocabulary
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.checkpoints.vocabulary import (
    MAX_BYTES,
    VOCABULARY_BLOCK,
    agreement,
    block_hashes,
    outputs_by_block,
    packed,
    token_bytes,
    unpacked,
)
from outrider.worker.errors import ModelError, PairRefused
from tests.tiny_models import SPECIALS, write_tokenizer

TOKENS = [bytes([i % 251, i // 251]) for i in range(1000)]


def counts(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_a_byte_level_tokenizer_gives_every_byte(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    tokens = token_bytes(vocabulary.load_tokenizer(tmp_path))
    assert tokens[:256] == [bytes([i]) for i in range(256)]
    assert tokens[256:] == [text.encode() for text in SPECIALS]


def test_a_sentencepiece_tokenizer_gives_spaces_bytes_and_added_tokens() -> None:
    words = {"<unk>": 0, "▁the": 1, "<0xE2>": 2, "é": 3, "▁": 4}
    tokenizer = Tokenizer(models.BPE(vocab=words, merges=[], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.add_tokens([AddedToken("▁kept", normalized=False)])
    found = token_bytes(tokenizer)
    assert found == [b"<unk>", b" the", b"\xe2", "é".encode(), b" ", "▁kept".encode()]


def test_another_kind_of_tokenizer_is_refused_by_name() -> None:
    tokenizer = Tokenizer(models.WordPiece(vocab={"a": 0}, unk_token="a"))
    tokenizer.decoder = decoders.WordPiece()
    with pytest.raises(ModelError, match="WordPiece"):
        token_bytes(tokenizer)


def test_it_is_known_what_a_tokenizer_puts_before_every_text(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    model = PreparedModel("tiny", tmp_path, tmp_path, tmp_path, "0" * 64)
    assert vocabulary.begin(model) == []
    tokenizer = vocabulary.load_tokenizer(tmp_path)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{SPECIALS[0]} $0", special_tokens=[(SPECIALS[0], 256)]
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert vocabulary.begin(model) == [256]


def test_tokens_are_remembered_until_the_tokenizer_changes(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    prepared = PreparedModel("tiny", tmp_path, tmp_path, tmp_path / "cache", "0" * 64)
    prepared.cache.mkdir()
    first = vocabulary.read(prepared)
    path = tmp_path / "tokenizer.json"
    text, state = path.read_text(), path.stat()
    path.write_text("x" * state.st_size)  # same size; with its time put back it goes unread
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert vocabulary.read(prepared) == first
    path.write_text(text.replace("<|user|>", "<|USER|>"))
    assert vocabulary.read(prepared)[257] == b"<|USER|>"
    (prepared.cache / "vocabulary.json").write_bytes(b"broken")
    assert vocabulary.read(prepared)[257] == b"<|USER|>"
    path.unlink()
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        vocabulary.read(prepared)


def test_tokens_are_read_where_nothing_can_be_remembered(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    (tmp_path / "file").touch()
    prepared = PreparedModel("tiny", tmp_path, tmp_path, tmp_path / "file", "0" * 64)
    assert vocabulary.read(prepared)[0] == b"\x00"


def test_hashes_tell_where_tokens_differ() -> None:
    changed = TOKENS.copy()
    changed[70] = b"?"
    differs = block_hashes(TOKENS) != block_hashes(changed)
    assert np.flatnonzero(differs).tolist() == [1]
    assert len(block_hashes(TOKENS)) == -(-1000 // VOCABULARY_BLOCK)


def test_borders_between_tokens_count() -> None:
    assert block_hashes([b"ab", b"c"])[0] != block_hashes([b"a", b"bc"])[0]


def test_hashes_are_the_same_everywhere() -> None:
    assert block_hashes([b"a", b"bc"]).tolist() == [4462843794109276867]


def test_padding_behind_the_last_token_does_not_count() -> None:
    padded = [*TOKENS, *[b""] * 500]
    assert block_hashes(padded).tolist() == block_hashes(TOKENS).tolist()


def test_equal_tokenizers_of_different_padding_agree_wholly() -> None:
    hashes = block_hashes(TOKENS)
    result = agreement(hashes, block_hashes([*TOKENS, b""]), None)
    assert result.share == 1.0
    assert result.agreed.all()


def test_only_ids_that_the_draft_can_output_count() -> None:
    changed = TOKENS.copy()
    changed[70] = b"?"
    ours, theirs = block_hashes(TOKENS), block_hashes(changed)
    assert round(agreement(ours, theirs, None).share, 3) == 0.938
    assert not agreement(ours, theirs, None).is_same
    outputs = outputs_by_block([1, 2, 500], len(TOKENS))
    result = agreement(ours, theirs, counts(*outputs))
    assert result.share == 1.0
    assert np.flatnonzero(~result.agreed).tolist() == [1]


def test_the_limit_is_99_of_100() -> None:
    ours, theirs = np.arange(3, dtype=np.uint64), np.array([0, 1, 9], np.uint64)
    assert agreement(ours, theirs, counts(64, 35, 1)).is_same
    assert not agreement(ours, theirs, counts(64, 34, 2)).is_same


def test_outputs_are_counted_by_block() -> None:
    assert outputs_by_block([0, 63, 64, 199], 200) == (2, 1, 0, 1)
    assert outputs_by_block([0, 250], 200) == (1, 0, 0, 0)
    assert outputs_by_block(None, 200) == ()


@pytest.mark.parametrize(
    ("hashes", "outputs"),
    [
        ([0], counts()),
        ([0, 1], counts(64)),
        ([0, 1], counts(-1, 64)),
        ([0, 1], counts(64, 2**40)),
    ],
)
def test_a_hello_that_cannot_be_is_refused(hashes: list[int], outputs: np.ndarray | None) -> None:
    with pytest.raises(PairRefused):
        agreement(np.arange(3, dtype=np.uint64), np.array(hashes, np.uint64), outputs)


@pytest.mark.parametrize(
    ("hashes", "outputs"),
    [
        ([], None),
        ([0, 1], counts(0, 0)),
        ([0, 1, *range(100, 70_000)], None),
        ([5, 6, 7], None),
    ],
)
def test_what_has_little_in_common_is_another_tokenizer(
    hashes: list[int], outputs: np.ndarray | None
) -> None:
    began = time.perf_counter()
    found = agreement(np.arange(3, dtype=np.uint64), np.array(hashes, np.uint64), outputs)
    assert not found.is_same
    assert time.perf_counter() - began < 1


def test_tokens_travel_packed() -> None:
    tokens = [*TOKENS, b"", "é".encode(), b"\xff" * 300]
    assert unpacked(packed(tokens)) == tokens
    assert unpacked(packed([])) == []


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"no such", "incorrect header"),
        (packed(TOKENS)[:-9], "an end that is missing"),
        (zlib.compress(b"\x02\0\0\0a"), "a token ends behind the end"),
        (zlib.compress(bytes(MAX_BYTES + 8)), f"more than {MAX_BYTES} bytes"),
    ],
)
def test_what_no_tokens_were_packed_to_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        unpacked(data)


def test_a_shorter_list_agrees_as_far_as_it_goes() -> None:
    result = agreement(np.arange(3, dtype=np.uint64), np.arange(2, dtype=np.uint64), None)
    assert result.agreed.tolist() == [True, True, False]


@given(st.lists(st.binary(max_size=4), max_size=200), st.integers(0, 199), st.binary(max_size=4))
def test_one_changed_token_changes_one_block(tokens: list[bytes], at: int, new: bytes) -> None:
    tokens = [*tokens, b"end"]
    changed = tokens.copy()
    changed[min(at, len(tokens) - 2)] = new
    changed[-1] = b"end"
    differs = block_hashes(tokens) != block_hashes(changed)
    where = [
        i // VOCABULARY_BLOCK
        for i, (a, b) in enumerate(zip(tokens, changed, strict=True))
        if a != b
    ]
    assert np.flatnonzero(differs).tolist() == where
