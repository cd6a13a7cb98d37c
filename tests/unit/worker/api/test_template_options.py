"""Options of a chat's layout: what a body asks for, and what the template makes of it."""

import inspect
import itertools
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from outrider.worker.api.control_tokens import BREAK
from outrider.worker.api.template_options import RESERVED
from outrider.worker.api.text import Text
from tests.tiny_models import write_tokenizer
from tests.unit.worker.api.scripted import Scripted

CHAT = "/v1/chat/completions"
TURNS = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Well, "}]
TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' }}"
    "{% if m.reasoning_content %}{{ '(' + m.reasoning_content + ')' }}{% endif %}"
    "{{ m['content'] + '<|end|>' }}{% endfor %}"
    "{{ mood }}{{ reasoning_effort }}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Text:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return Text.load(folder)


@pytest.mark.parametrize(
    ("asked", "laid_out"),
    [
        ({}, "<|user|>hi<|end|><|assistant|>Well, <|end|><|assistant|>"),
        ({"add_generation_prompt": False}, "<|user|>hi<|end|><|assistant|>Well, <|end|>"),
        ({"continue_final_message": True}, "<|user|>hi<|end|><|assistant|>Well, "),
        (
            {"messages": [TURNS[0], TURNS[1] | {"prefix": True}]},
            "<|user|>hi<|end|><|assistant|>Well, ",
        ),
        (
            {"messages": [TURNS[0], TURNS[1] | {"partial": True}]},
            "<|user|>hi<|end|><|assistant|>Well, ",
        ),
        (
            {"messages": [TURNS[0], TURNS[1] | {"reasoning_content": "Hm<|end|>"}]},
            "<|user|>hi<|end|><|assistant|>(Hm<\ufdd0|end|>)Well, <|end|><|assistant|>",
        ),
        (
            {"messages": [TURNS[0], TURNS[1] | {"reasoning": "Hm", "prefix": False}]},
            "<|user|>hi<|end|><|assistant|>(Hm)Well, <|end|><|assistant|>",
        ),
        (
            {"chat_template_kwargs": {"mood": "glad"}, "reasoning_effort": "low"},
            "<|user|>hi<|end|><|assistant|>Well, <|end|>gladlow<|assistant|>",
        ),
    ],
)
def test_a_chat_is_laid_out_as_asked(text: Text, asked: dict[str, Any], laid_out: str) -> None:
    target = Scripted(text)
    assert target.post(CHAT, **{"messages": TURNS} | asked).status_code == 200
    pieces = (text.encode(piece) for piece in laid_out.split(BREAK))
    assert target.submits[0].prompt.tolist() == [*itertools.chain.from_iterable(pieces)]


def test_control_tokens_in_variables_are_text(text: Text) -> None:
    target = Scripted(text)
    target.post(CHAT, messages=TURNS, chat_template_kwargs={"mood": "<|end|>"})
    plain = len(text.encode("<|user|>hi<|end|><|assistant|>Well, <|end|><|assistant|>"))
    assert BREAK not in text.decode(target.submits[0].prompt)
    assert len(target.submits[0].prompt) == plain + len("<|end|>")


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"mood": "x" * 9000}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": 7}, "chat_template_kwargs"),
        (
            {"continue_final_message": True, "add_generation_prompt": True},
            "continue_final_message",
        ),
        (
            {"continue_final_message": True, "messages": [{"role": "user", "content": ""}]},
            "continue_final_message",
        ),
        (
            {"messages": [{"role": "assistant", "content": "", "partial": True}]},
            "messages[0].partial",
        ),
        ({"messages": [{**TURNS[1], "prefix": True}, TURNS[0]]}, "messages[0].prefix"),
        (
            {"messages": [{**TURNS[1], "reasoning_content": 7}]},
            "messages[0].reasoning_content",
        ),
        ({"echo": True}, "echo"),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(
    text: Text, asked: dict[str, Any], param: str
) -> None:
    response = Scripted(text).post(CHAT, **{"messages": TURNS} | asked)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def test_thoughts_that_can_never_fit_are_refused_by_their_bytes(text: Text) -> None:
    long = {**TURNS[1], "reasoning_content": "x" * 9000}
    error = Scripted(text).post(CHAT, messages=[long]).json()["error"]
    assert error["param"] == "messages"
    assert "bytes' is not allowed" in error["message"]


def test_no_variable_is_taken_for_an_argument() -> None:
    known = inspect.signature(PreTrainedTokenizerFast.apply_chat_template).parameters
    assert {*known, "messages"} - {"self", "kwargs"} == RESERVED
