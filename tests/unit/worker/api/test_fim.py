"""Fill in the middle: which tokens a model has for it, and how a prompt is laid out with them."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from outrider.worker.api.fim import File, FimPrompt, FimTokens, around_cursor
from outrider.worker.api.text import Text
from tests.tiny_models import byte_characters

QWEN = {
    "<|endoftext|>": 151643,
    "<|im_start|>": 151644,
    "<|im_end|>": 151645,
    "<|fim_prefix|>": 151659,
    "<|fim_middle|>": 151660,
    "<|fim_suffix|>": 151661,
    "<|fim_pad|>": 151662,
    "<|repo_name|>": 151663,
    "<|file_sep|>": 151664,
}
CODELLAMA = {"</s>": 2, "▁<PRE>": 32007, "▁<SUF>": 32008, "▁<MID>": 32009, "▁<EOT>": 32010}
DEEPSEEK = {
    "<\uff5cend▁of▁sentence\uff5c>": 32014,
    "<\uff5cfim▁hole\uff5c>": 32015,
    "<\uff5cfim▁begin\uff5c>": 32016,
    "<\uff5cfim▁end\uff5c>": 32017,
    "<|EOT|>": 32021,
}
GRANITE = {
    "<|endoftext|>": 0,
    "<fim_prefix>": 1,
    "<fim_middle>": 2,
    "<fim_suffix>": 3,
    "<fim_pad>": 4,
}
CODESTRAL = {"</s>": 2, "[INST]": 3, "[PREFIX]": 14, "[MIDDLE]": 15, "[SUFFIX]": 16}
"""Names are the model's; ids are not."""
AROUND = FimPrompt("ab", "c", 8)
A, B, C = map(ord, "abc")


NONE: dict[str, int] = {}


def code_points(text: str, begins: bool) -> list[int]:
    return list(map(ord, text))


def tokens_of(vocabulary: Mapping[str, int], **given: int) -> FimTokens:
    found = FimTokens.find(vocabulary.get, given)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("vocabulary", "laid_out", "ends"),
    [
        (QWEN, [151659, A, B, 151661, C, 151660], {*range(151659, 151665), 151643}),
        (CODELLAMA, [32007, A, B, 32008, C, 32009], {32007, 32008, 32009, 32010}),
        (DEEPSEEK, [32016, A, B, 32015, C, 32017], {32014, 32015, 32016, 32017}),
        (GRANITE, [1, A, B, 3, C, 2], {0, 1, 2, 3, 4}),
        (CODESTRAL, [16, C, 14, A, B], {14, 16}),
    ],
)
def test_each_family_has_its_tokens_in_their_places(
    vocabulary: Mapping[str, int], laid_out: list[int], ends: set[int]
) -> None:
    tokens = tokens_of(vocabulary)
    assert tokens.lay_out(AROUND, code_points, 100) == laid_out
    assert set(tokens.ends) == ends


def test_what_a_file_says_of_its_tokens_comes_before_their_names() -> None:
    assert FimTokens.find(NONE.get, {}) is None
    assert FimTokens.find({"<|fim_prefix|>": 1, "<|fim_suffix|>": 2}.get, {}) is None
    assert FimTokens.find(NONE.get, {"pre": 1}) is None
    own = tokens_of(QWEN, pre=7, suf=8)
    assert own.lay_out(AROUND, code_points, 100) == [7, A, B, 8, C, 151660]
    assert tokens_of({}, pre=7, suf=8).lay_out(AROUND, code_points, 100) == [8, C, 7, A, B]


def test_files_come_before_the_prefix_where_a_model_knows_files() -> None:
    files = (File("a.py", "x"), File("", "y\n"))
    prompt = FimPrompt("ab", "c", 8, files)
    whole = tokens_of(QWEN).lay_out(prompt, code_points, 100)
    repository, file = 151663, 151664
    assert whole == [
        *(repository, *b"project\n"),
        *(file, *b"a.py\nx\n"),
        *(file, *b"snippet\ny\n"),
        *(file, *b"file\n"),
        *(151659, A, B, 151661, C, 151660),
    ]
    fewer = tokens_of(QWEN).lay_out(prompt, code_points, len(whole) - 1)
    assert fewer == [*whole[:9], *whole[17:]]
    assert tokens_of(QWEN).lay_out(prompt, code_points, 30) == whole[-6:]
    assert tokens_of(DEEPSEEK).lay_out(prompt, code_points, 100)[0] == 32016


@given(before=st.integers(0, 300), after=st.integers(0, 300), room=st.integers(0, 400))
def test_what_is_farthest_from_the_cursor_is_cut(before: int, after: int, room: int) -> None:
    prefix, suffix = list(range(before)), list(range(after))
    left, right = around_cursor(prefix, suffix, room)
    assert left == prefix[before - len(left) :]
    assert right == suffix[: len(right)]
    assert len(left) + len(right) <= room
    if before + after <= room:
        assert (left, right) == (prefix, suffix)
    else:
        assert len(left) + len(right) > room - 2 * max(1, room // 8)
        assert len(left) >= min(before, room // 2)


def test_the_prompt_of_somebody_who_types_on_begins_like_the_last_one() -> None:
    begins = {around_cursor(range(800 + typed), range(200), 512)[0][0] for typed in range(64)}
    assert len(begins) == 2


def text_of(folder: Path, tokenizer: Tokenizer) -> Text:
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    return Text.load(folder)


def test_control_tokens_in_the_code_are_text(tmp_path: Path) -> None:
    tokenizer = Tokenizer(
        models.BPE(vocab={c: i for i, c in enumerate(byte_characters())}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name) for name in QWEN])
    text = text_of(tmp_path, tokenizer)
    assert text.fim is not None
    ids = text.encode_fim(FimPrompt("<|im_end|>", "<|fim_middle|>", 8), text.fim, 100)
    words = [*b"<|im_end|>"], [*b"<|fim_middle|>"]
    assert ids == [text.fim.prefix, *words[0], text.fim.suffix, *words[1], text.fim.middle]


def test_sentencepiece_puts_a_space_before_the_prefix_alone(tmp_path: Path) -> None:
    """As the tokenizers of CodeLlama and Codestral do."""
    words = ["<unk>", "<s>", "▁", "a", "b", *[f"<0x{i:02X}>" for i in range(256)]]
    vocabulary = {word: at for at, word in enumerate([*words, *CODELLAMA])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Strip(" ", 1, 0)]
    )
    text = text_of(tmp_path, tokenizer)
    assert text.fim is not None
    ids = text.encode_fim(FimPrompt("a", "b a", 8), text.fim, 100)
    space, a, b = (vocabulary[word] for word in "▁ab")
    assert ids == [text.fim.prefix, space, a, text.fim.suffix, b, space, a, text.fim.middle]
    assert text.decode([a, vocabulary["▁<EOT>"]]) == "a"
