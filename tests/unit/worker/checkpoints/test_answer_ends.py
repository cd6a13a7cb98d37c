"""Where an answer ends: every source of end tokens is asked, and none that is not one."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from outrider.worker.checkpoints.answer_ends import find, note
from outrider.worker.checkpoints.prepared import PreparedModel
from tests.tiny_models import write_tiny

TURNS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WORDS = ["a", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "</s>"]


def tokenizer(folder: Path, template: str | None, **special: Any) -> Path:
    backend = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, "a"))
    backend.add_special_tokens(WORDS[1:])
    made = PreTrainedTokenizerFast(tokenizer_object=backend, **special)
    made.chat_template = template
    made.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("template", "special", "ends"),
    [
        (None, {}, ()),
        (None, {"eos_token": "</s>"}, (4,)),
        (TURNS, {}, (3,)),
        (TURNS, {"eos_token": "<|endoftext|>"}, (1, 3)),
        (TURNS, {"eos_token": "<|im_end|>"}, (3,)),
        ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", {}, ()),
        ("{{ messages[0].content }}</s>{{ messages[1].content }}", {}, ()),
        ("{{ raise_exception('system first') }}", {"eos_token": "</s>"}, (4,)),
    ],
    ids=["nothing", "own", "turn", "both", "the same", "no token", "before it", "template fails"],
)
def test_the_tokenizer_and_its_template_are_asked(
    tmp_path: Path, template: str | None, special: dict[str, Any], ends: tuple[int, ...]
) -> None:
    assert find(tokenizer(tmp_path, template, **special)) == [*ends]


def test_a_model_has_those_of_all_its_files(tmp_path: Path) -> None:
    folder = tokenizer(write_tiny(tmp_path / "model", vocab=260), TURNS, eos_token="</s>")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": 1}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 5]}))
    cache = tmp_path / "cache"
    cache.mkdir()
    model = PreparedModel("tiny", folder, folder, cache, "0" * 64)
    note(folder, cache)
    assert model.config().end_ids == (1, 5, 4, 3)
    (folder / "chat_template.jinja").unlink()
    tokenizer(folder, None, eos_token="<|im_start|>")
    note(folder, cache)
    assert model.config().end_ids == (1, 5, 2), "what is remembered is of the files as they were"
