"""Reasoning split off answers, whatever cuts them into pieces."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as run_with
from hypothesis import strategies as st

from outrider.worker.api.reasoning import Place, Reasoning, first_place
from outrider.worker.api.text import Text
from tests.tiny_models import write_tokenizer
from tests.unit.worker.api.scripted import Scripted

CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]


def written(text: Text, answer: str) -> list[int]:
    """The tokens that a model writes an answer with, tags by their own ones where it has them."""
    return text.encode(answer, special=False)


def split(place: Place, *pieces: str) -> tuple[str, str]:
    reasoning = Reasoning(place)
    parts = [*map(reasoning.push, pieces), reasoning.finish()]
    return "".join(thought for thought, _ in parts), "".join(content for _, content in parts)


@pytest.mark.parametrize(
    ("place", "answer", "wanted"),
    [
        (Place.START, "<think>\nI see.\n</think>\n\nYes.\n", ("I see.", "Yes.\n")),
        (Place.START, " \n<think>a b</think>c", ("a b", "c")),
        (Place.START, "<think>\n\n</think>\n\nYes.", ("", "Yes.")),
        (Place.START, "  Yes <think>no</think>", ("", "  Yes <think>no</think>")),
        (Place.START, "<thin", ("", "<thin")),
        (Place.START, " ", ("", " ")),
        (Place.REASONING, "a\n\nb </th ink></think> c</think>", ("a\n\nb </th ink>", "c</think>")),
        (Place.REASONING, "never ends \n", ("never ends", "")),
        (Place.REASONING, "cut </thi", ("cut </thi", "")),
        (Place.CONTENT, " \n<think>a</think>", ("", " \n<think>a</think>")),
    ],
)
def test_an_answer_is_split_alike_wherever_it_is_cut(
    place: Place, answer: str, wanted: tuple[str, str]
) -> None:
    assert split(place, *answer) == wanted
    for at in range(len(answer) + 1):
        assert split(place, answer[:at], answer[at:]) == wanted


@run_with(derandomize=True, deadline=None, max_examples=200)
@given(
    st.sampled_from(Place), st.lists(st.sampled_from(("<think>", "</think>", "<", "/", " ", "x")))
)
def test_any_answer_is_split_alike_in_one_piece_and_in_characters(
    place: Place, parts: list[str]
) -> None:
    whole = "".join(parts)
    assert split(place, *whole) == split(place, whole)


def test_an_answer_begins_where_the_prompt_leaves_it(thinker: Text, tmp_path: Path) -> None:
    def place(text: Text, **variables: bool) -> Place:
        target = Scripted(text)
        target.post(CHAT, messages=HI, chat_template_kwargs=variables)
        return first_place(text, target.submits[0].prompt)

    assert place(thinker) is Place.START
    assert place(thinker, opens=True) is Place.REASONING
    assert place(thinker, enable_thinking=False) is Place.START
    write_tokenizer(tmp_path)
    assert place(Text.load(tmp_path)) is Place.CONTENT


def test_reasoning_has_a_field_of_its_own(thinker: Text) -> None:
    target = Scripted(thinker, written(thinker, "<think>\nhm\n</think>\n\nyes"))
    message = target.post(CHAT, messages=HI).json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("hm", "yes")
    streamed = target.post(CHAT, messages=HI, stream=True).text
    assert '"delta":{"reasoning_content":"hm","content":"yes"}' in streamed
    formed = Scripted(thinker, written(thinker, "<think>"), formats=True)
    form = {"type": "json_object"}
    message = formed.post(CHAT, messages=HI, response_format=form).json()["choices"][0]["message"]
    assert message["content"] == "<think>"
    assert "reasoning_content" not in message


def test_an_answer_of_a_model_that_does_not_think_keeps_its_blanks(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    target = Scripted(Text.load(tmp_path), b"\n <think>")
    message = target.post(CHAT, messages=HI).json()["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "\n <think>", "refusal": None}
