"""Tiny tokenizers that several tests share."""

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, processors
from transformers import PreTrainedTokenizerFast

from outrider.worker.api.text import THOUGHT_TAGS, Text
from tests.tiny_models import write_tokenizer

THINKS = (
    "{% for m in messages %}{{ m['role'] + ':' + m['content'].split('</think>')[-1] + ';' }}"
    "{% endfor %}{{ 'assistant:' }}"
    "{% if opens %}{{ '<think>\\n' }}{% endif %}"
    "{% if enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}"
)


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Text:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    return Text.load(folder)


@pytest.fixture(scope="session", params=[None, False, True])
def thinker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Text:
    """A tokenizer whose chat template thinks, with tags that are many tokens, one, or a special
    one."""
    folder = tmp_path_factory.mktemp("thinker")
    write_tokenizer(folder)
    if request.param is not None:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tags = [AddedToken(tag, special=request.param) for tag in THOUGHT_TAGS]
        tokenizer.add_tokens(tags)
        tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(THINKS)
    return Text.load(folder)


@pytest.fixture(scope="session")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> Text:
    """As Llama 2's: ▁ for a space, bytes as a last resort, a token that begins every text."""
    words = ["<unk>", "<s>", "▁", "▁the", "▁cat", "s", *[f"<0x{i:02X}>" for i in range(256)]]
    tokenizer = Tokenizer(
        models.BPE(vocab={w: i for i, w in enumerate(words)}, merges=[], byte_fallback=True)
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    folder = tmp_path_factory.mktemp("sentencepiece")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    return Text.load(folder)
