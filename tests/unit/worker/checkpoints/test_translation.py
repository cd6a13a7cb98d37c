"""Translation between two vocabularies: shared tokens by their bytes, others spelled."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.worker.checkpoints.translation import LONGEST, NONE, Translation, translation
from outrider.worker.errors import PairRefused
from outrider.worker.tree.draft_ids import id_count, merged, read

BYTES = [bytes([byte]) for byte in b"abcdef "]
TARGET = [b"abc", b" def", *BYTES, b"", b"a b"]
DRAFT = [b"", *reversed(BYTES), b" def", b"ab", b"fed"]
MERGES = st.lists(st.binary(min_size=2, max_size=5), max_size=30, unique=True)
ALL_BYTES = [bytes([byte]) for byte in range(256)]


def spelled_by(made: Translation, tokens: list[bytes], draft: list[bytes]) -> list[bytes]:
    """Return what the draft reads for each token of the target."""
    return [
        b"".join(draft[one] for one in read(made.reading, np.array([number], np.int32)))
        for number in range(len(tokens))
    ]


def test_tokens_of_both_have_each_other_s_ids_and_no_others() -> None:
    made = translation(TARGET, DRAFT, len(DRAFT))
    for own, other in enumerate(made.target_ids):
        assert (other == NONE) == (DRAFT[own] not in TARGET or not DRAFT[own])
        assert other == NONE or TARGET[other] == DRAFT[own]
    proposed = {int(one) for one in made.target_ids if one != NONE}
    assert set(np.flatnonzero(made.allowed)) == proposed
    assert made.share == 8 / 11


def test_a_token_that_is_read_as_two_of_both_is_found_by_them_and_proposed() -> None:
    tokens = [*BYTES, b"ab", b"abc", b"fed", b"abab", b"a b"]
    made = translation(tokens, [*DRAFT, b"ab "], len(DRAFT) + 1)
    a, b, c, ab = (tokens.index(one) for one in (b"a", b"b", b"c", b"ab"))
    assert merged(made.reading, ab, c) == tokens.index(b"abc")
    assert merged(made.reading, ab, ab) == tokens.index(b"abab")
    assert merged(made.reading, a, b) == -1, "the draft has that"
    assert merged(made.reading, c, a) == -1, "no token"
    assert np.flatnonzero(~made.allowed).tolist() == [tokens.index(b"a b")], "of three"


def test_a_token_of_the_target_alone_is_read_as_the_longest_that_spell_it() -> None:
    made = translation(TARGET, DRAFT, len(DRAFT))
    ids = read(made.reading, np.array([0, 1, 10], np.int32)).tolist()
    assert [DRAFT[one] for one in ids] == [b"ab", b"c", b" def", b"a", b" ", b"b"]
    assert id_count(made.reading, np.array([0, 1, 10], np.int32)) == 6
    assert made.reading.longest == 3


def test_a_token_goes_before_the_byte_that_stands_in_where_there_is_none() -> None:
    gemma = [b"\n", *ALL_BYTES, b"a"]
    made = translation(gemma, [b"a", b"\n", b"b"], 3)
    assert made.target_ids.tolist() == [len(gemma) - 1, 0, 1 + ord("b")]
    back = translation([b"a", b"\n", b"b"], gemma, len(gemma))
    assert read(back.reading, np.arange(3, dtype=np.int32)).tolist() == made.target_ids.tolist()


def test_what_nothing_spells_is_read_as_the_last_id() -> None:
    made = translation([b"ab", b"\xff", b""], DRAFT, len(DRAFT))
    assert read(made.reading, np.array([1, 2], np.int32)).tolist() == [len(DRAFT) - 1] * 2


def test_of_a_long_token_the_end_is_read() -> None:
    made = translation([*BYTES, b"a" * 99 + b"b" * 3], BYTES, len(BYTES))
    found = read(made.reading, np.array([len(BYTES)], np.int32)).tolist()
    assert found == [0] * (LONGEST - 3) + [1] * 3


def test_ids_that_the_draft_s_model_lacks_are_neither_proposed_nor_read() -> None:
    made = translation(TARGET, DRAFT, 9)
    assert len(made.target_ids) == 9
    assert made.reading.ids.max() < 9
    assert [DRAFT[one] for one in read(made.reading, np.array([0], np.int32))] == [b"a", b"b", b"c"]


def test_a_text_begins_as_the_draft_s_tokenizer_begins_it() -> None:
    made = translation(TARGET, DRAFT, len(DRAFT), [0])
    assert made.begun(np.array([3, 4], np.int32)).tolist() == [0, 3, 4]
    assert made.begun(np.array([0, 4], np.int32)).tolist() == [0, 4], "it does already"
    assert translation(TARGET, DRAFT, len(DRAFT)).begun(made.begin).tolist() == [0]


def test_too_few_tokens_in_common_are_refused_with_their_number() -> None:
    with pytest.raises(PairRefused, match=r"1 tokens are in both; 10 % of the smaller one's 11"):
        translation([bytes([65 + i, 90]) for i in range(20)], [*TARGET * 3, b"AZ"], 99)
    with pytest.raises(PairRefused, match="0 tokens"):
        translation([b"", b""], [b"a"], 1)


@given(MERGES, MERGES)
def test_any_token_is_read_as_its_own_bytes(target: list[bytes], draft: list[bytes]) -> None:
    tokens, own = [*ALL_BYTES, *target], [*draft, *ALL_BYTES]
    made = translation(tokens, own, len(own))
    assert spelled_by(made, tokens, own) == tokens
    assert [tokens[one] for one in made.target_ids if one != NONE] == [
        token for token in own if token in set(tokens)
    ]
