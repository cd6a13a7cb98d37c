"""A GGUF's tokenizer gives the ids that llama.cpp recorded for the files that this module writes.

`gguf_ids.json`: llama-cpp-python 0.3.36, `llama_tokenize` of a file with a vocabulary alone. Where
llama.cpp only comes near a model's own rule (white space beyond ASCII in DeepSeek's, upper case
beyond ASCII in Tekken's and GPT-4o's), the texts have none of it.
"""

import functools
import json
from pathlib import Path
from typing import Any

import gguf
import pytest

from outrider.worker.api.text import Text
from outrider.worker.checkpoints.gguf_file import GgufModel
from outrider.worker.checkpoints.gguf_tokenizer import RULES, Rule, tokenizer_of
from outrider.worker.errors import ModelError

RECORDED = json.loads(Path(__file__).with_name("gguf_ids.json").read_text(encoding="utf-8"))
PRINTED = [*range(33, 127), *range(161, 173), *range(174, 256)]
SPELLED = {byte: chr(byte) for byte in PRINTED}
SPELLED |= {
    byte: chr(256 + at) for at, byte in enumerate(b for b in range(256) if b not in PRINTED)
}
CHARACTERS = "abTSldmrevAB0123 \n\t\r.,:!'\"([<>/|+-=^$`_éß中の가\uff11Ⅷ²ⴀ\u0301😀\u2019€、。"
WHOLE_WORD = "ABba"
"""A token that no merges make."""
PIECES = [
    "▁",
    "▁he",
    "▁hello",
    "h",
    "e",
    "l",
    "o",
    "he",
    "ll",
    "llo",
    "lo",
    "▁▁",
    "▁l",
    "é",
    "中",
    ".",
]


def spelled(text: str) -> str:
    """Text in the alphabet of byte-level vocabularies."""
    return "".join(SPELLED[byte] for byte in text.encode())


def every_pair() -> list[tuple[str, str]]:
    """Merges of the bytes of each character, then of any two characters: every cut shows."""
    whole = [spelled(character) for character in CHARACTERS]
    found = {text[: n + 1]: (text[:n], text[n]) for text in whole for n in range(1, len(text))}
    for one in whole:
        for other in whole:
            found.setdefault(one + other, (one, other))
    return list(found.values())


def write(path: Path, metadata: dict[str, Any]) -> GgufModel:
    """A `llama` file without tensors."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in metadata.items():
        plain = functools.partial(writer.add_uint32, f"tokenizer.ggml.{key}")
        add = getattr(writer, f"add_{key}", plain)
        add(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return GgufModel(path)


def byte_level(path: Path, pre: str | None, **more: Any) -> GgufModel:
    """A file with the vocabulary of `every_pair`."""
    merges = every_pair()
    tokens = [
        *dict.fromkeys([*SPELLED.values(), *(a + b for a, b in merges)]),
        WHOLE_WORD,
        "<|begin|>",
        "<|end|>",
    ]
    found = {
        "tokenizer_model": "gpt2",
        "token_list": tokens,
        "token_types": [1] * (len(tokens) - 2) + [3, 3],
        "token_merges": [f"{one} {other}" for one, other in merges],
        "bos_token_id": len(tokens) - 2,
        "eos_token_id": len(tokens) - 1,
    }
    return write(path, found | ({} if pre is None else {"tokenizer_pre": pre}) | more)


def sentencepiece(path: Path, **more: Any) -> GgufModel:
    """A file with a vocabulary of scores, as Llama 2's."""
    tokens = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *PIECES,
        "<|user|>",
    ]
    found = {
        "tokenizer_model": "llama",
        "token_list": tokens,
        "token_types": [2, 3, 3, *[6] * 256, *[1] * len(PIECES), 3],
        "token_scores": [0.0] * 259 + [-float(at) for at in range(len(PIECES))] + [0.0],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unk_token_id": 0,
    }
    return write(path, found | more)


def ids(model: GgufModel, texts: list[str]) -> list[list[int]]:
    backend = tokenizer_of(model).backend_tokenizer
    return [encoding.ids for encoding in backend.encode_batch(texts)]


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> dict[Rule, list[list[int]]]:
    """The ids of the texts by each rule."""
    file = tmp_path_factory.mktemp("rules") / "model.gguf"
    names = {rule: name for name, rule in RULES.items()}
    return {rule: ids(byte_level(file, name), RECORDED["texts"]) for rule, name in names.items()}


@pytest.mark.parametrize("pre", RULES)
def test_text_is_cut_as_the_file_says(cut: dict[Rule, list[list[int]]], pre: str) -> None:
    assert cut[RULES[pre]] == RECORDED["ids"][RECORDED["same as"].get(pre, pre)]


def test_a_file_that_does_not_say_is_cut_by_default(tmp_path: Path) -> None:
    unsaid = byte_level(tmp_path / "model.gguf", None)
    assert ids(unsaid, RECORDED["texts"]) == RECORDED["ids"]["default"]


@pytest.mark.parametrize("flags", [each["flags"] for each in RECORDED["sentencepiece"]])
def test_sentencepiece_begins_as_the_file_says(tmp_path: Path, flags: dict[str, bool]) -> None:
    (recorded,) = (each for each in RECORDED["sentencepiece"] if each["flags"] == flags)
    assert ids(sentencepiece(tmp_path / "m.gguf", **flags), RECORDED["spaced"]) == recorded["ids"]


@pytest.mark.parametrize("prefix", [True, False])
def test_sentencepiece_text_comes_back(tmp_path: Path, prefix: bool) -> None:
    tokenizer = tokenizer_of(sentencepiece(tmp_path / "m.gguf", add_space_prefix=prefix))
    backend = tokenizer.backend_tokenizer
    for text in ("hello", " hello", "hello lo", "é😀 中"):
        assert backend.decode(backend.encode(text).ids) == text


def test_the_file_has_the_last_word_on_what_a_text_begins_with(tmp_path: Path) -> None:
    llama3 = byte_level(tmp_path / "m.gguf", "llama-bpe", add_bos_token=False)
    other = byte_level(tmp_path / "o.gguf", "qwen2", add_bos_token=True)
    begin = llama3.value("tokenizer.ggml.bos_token_id")
    assert [ids(llama3, ["a"])[0][0] == begin, ids(other, ["a"])[0][0] == begin] == [False, True]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tokenizer_pre": "martian"}, "tokenizer.ggml.pre 'martian' is not supported; allowed: "),
        ({"token_merges": None}, "tokenizer.ggml.merges is missing"),
        ({"tokenizer_model": "t5"}, "tokenizer.ggml.model 't5' is not supported; allowed: "),
    ],
)
def test_what_cannot_be_read_rightly_is_refused(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    whole = {"tokenizer_model": "gpt2", "token_list": ["a"], "token_merges": ["a a"]} | change
    model = write(tmp_path / "m.gguf", {k: v for k, v in whole.items() if v is not None})
    with pytest.raises(ModelError, match=words):
        tokenizer_of(model)


@pytest.mark.parametrize("names", ["fim_pre fim_suf fim_mid", "prefix suffix middle"])
def test_a_file_names_its_tokens_to_fill_in_the_middle(tmp_path: Path, names: str) -> None:
    own = {f"{name}_token_id": at for at, name in enumerate(names.split(), 3)}
    beyond = {"fim_pad_token_id": 10**6}
    tokenizer_of(byte_level(tmp_path / "m.gguf", "gpt-2", **own, **beyond)).save_pretrained(
        tmp_path
    )
    fim = Text.load(tmp_path).fim
    assert fim is not None
    assert (fim.prefix, fim.suffix, fim.middle) == (3, 4, 5)
    assert 10**6 not in fim.ends
