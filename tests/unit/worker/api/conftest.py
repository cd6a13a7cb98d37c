"""Tiny tokenizers that several tests share."""

import pytest

from outrider.worker.api.text import Text
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


@pytest.fixture(scope="session")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Text:
    """A tokenizer whose chat template thinks."""
    folder = tmp_path_factory.mktemp("thinker")
    write_tokenizer(folder)
    (folder / "chat_template.jinja").write_text(THINKS)
    return Text.load(folder)
