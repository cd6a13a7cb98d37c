"""Defaults of requests that depend on more than one field."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from outrider.contract.inference import MAX_STREAM_INTERVAL_MS, STREAM_INTERVAL_MS
from outrider.protos.v1 import inference_pb2 as pb
from outrider.worker.api.fim import FimPrompt
from outrider.worker.api.prompt import Chat, Prompt, Prompts
from outrider.worker.api.request import (
    GenerateRequest,
    RequestParser,
    ServedModel,
    stream_seconds,
)
from outrider.worker.api.response_format import ResponseFormats
from outrider.worker.api.text import Text
from outrider.worker.errors import InvalidField
from outrider.worker.messages import Submit
from tests.tiny_models import write_tokenizer

CONTEXT = 16
WORDS = "one two three four five six seven eight "


@pytest.mark.parametrize(
    ("wanted", "stops", "milliseconds"),
    [
        (None, (), STREAM_INTERVAL_MS),
        (0, (), 0),
        (MAX_STREAM_INTERVAL_MS, (), MAX_STREAM_INTERVAL_MS),
        (None, ("end",), STREAM_INTERVAL_MS),
        (3, ("end",), 3),
        (MAX_STREAM_INTERVAL_MS, ("end",), STREAM_INTERVAL_MS),
    ],
)
def test_tokens_in_which_a_stop_string_may_be_come_as_soon_as_by_default(
    wanted: int | None, stops: tuple[str, ...], milliseconds: int
) -> None:
    assert stream_seconds(wanted, bool(stops)) == milliseconds / 1000


@pytest.fixture(scope="module")
def parser(tmp_path_factory: pytest.TempPathFactory) -> RequestParser:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    return parser_of(Text.load(folder))


def parser_of(text: Text, vocabulary: int = 1000, end_ids: tuple[int, ...] = ()) -> RequestParser:
    model = ServedModel(
        name="tiny",
        context_length=CONTEXT,
        vocabulary_size=vocabulary,
        revision="r1",
        has_chat_template=False,
        end_ids=end_ids,
    )
    return RequestParser(model, Prompts(text, CONTEXT, vocabulary), ResponseFormats(None), 1.0)


def parsed(parser: RequestParser, prediction: str) -> Submit:
    request = GenerateRequest("hi", {"seed": 1}, prediction=prediction)
    return asyncio.run(parser.parse(request)).submit


def test_a_prediction_is_cut_at_the_context_and_the_engine_is_told(parser: RequestParser) -> None:
    whole = parser.prompts.text.encode_prediction(WORDS)
    assert len(whole) > CONTEXT
    submit = parsed(parser, WORDS)
    assert submit.prediction.tolist() == whole[:CONTEXT]
    assert submit.cut_prediction_tokens == len(whole) - CONTEXT
    short = parsed(parser, "one")
    assert short.prediction.tolist() == parser.prompts.text.encode_prediction("one")
    assert short.cut_prediction_tokens == 0


@pytest.mark.parametrize("prediction", ["", "x" * 100_000])
def test_a_prediction_out_of_its_limits_is_refused_by_name(
    parser: RequestParser, prediction: str
) -> None:
    with pytest.raises(InvalidField, match=r"^prediction: "):
        parsed(parser, prediction)


@pytest.fixture(scope="module")
def coder(tmp_path_factory: pytest.TempPathFactory) -> Text:
    """A tokenizer whose first bytes are its tokens to fill in the middle."""
    folder = tmp_path_factory.mktemp("coder")
    write_tokenizer(folder, fim_token_ids={"pre": 1, "suf": 2, "mid": 3, "sep": 256})
    return Text.load(folder)


def filled(parser: RequestParser, prompt: Prompt, **fields: Any) -> Submit:
    return asyncio.run(parser.parse(GenerateRequest(prompt, {"seed": 1}, **fields))).submit


def test_a_prompt_to_fill_in_the_middle_leaves_room_for_the_answer(coder: Text) -> None:
    parser = parser_of(coder)
    short = filled(parser, FimPrompt("ab", "c", 4), max_tokens=4)
    assert short.prompt.tolist() == [1, *b"ab", 2, *b"c", 3]
    long = filled(parser, FimPrompt("x" * 10_000_000, "y" * 10_000_000, 4), max_tokens=4)
    assert long.prompt.tolist() == [1, *b"x" * 7, 2, *b"y" * 2, 3]
    half = filled(parser, FimPrompt("x" * 100, "y" * 100, 100))
    assert (len(half.prompt), half.max_tokens) == (CONTEXT // 2, CONTEXT // 2)


def test_an_answer_in_the_middle_ends_with_the_tokens_for_it_too(coder: Text) -> None:
    parser = parser_of(coder, end_ids=(9, 3))
    assert set(filled(parser, FimPrompt("a", "b", 4)).end_ids) == {9, 3, 1, 2, 256}
    assert filled(parser, FimPrompt("a", "b", 4), ignore_end=True).end_ids == ()
    assert set(filled(parser, "\x01a\x02b\x03").end_ids) == {9, 3, 1, 2, 256}
    for other in ("hi", "\x01a", "a\x02b"):
        assert filled(parser, other).end_ids == (9, 3)


def test_a_model_that_cannot_fill_in_the_middle_is_refused_by_the_field(
    parser: RequestParser, coder: Text
) -> None:
    for without in (parser, parser_of(coder, vocabulary=256)):
        with pytest.raises(
            InvalidField, match=r"^suffix: 'b' is not allowed; this model has no tok"
        ):
            filled(without, FimPrompt("a", "b", 4))


def test_a_call_whose_text_is_no_unicode_is_refused(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.content }}{% if m.tool_calls %}{% for c in m.tool_calls %}"
        "{{ c.function.arguments.a }}{% endfor %}{% endif %}{% endfor %}"
    )
    call = json.dumps([{"function": {"name": "f", "arguments": '{"a": "\\ud800"}'}}])
    turn = pb.ChatMessage(role="assistant", tool_calls_json=call)
    prompts = Prompts(Text.load(tmp_path), CONTEXT, 1000)
    with pytest.raises(InvalidField, match=r"chat\.messages.*valid Unicode"):
        asyncio.run(prompts.tokenize(Chat([turn])))
