"""Defaults of requests that depend on more than one field."""

import asyncio

import pytest

from outrider.contract.inference import MAX_STREAM_INTERVAL_MS, STREAM_INTERVAL_MS
from outrider.worker.api.prompt import Prompts
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
    assert stream_seconds(wanted, stops) == milliseconds / 1000


@pytest.fixture(scope="module")
def parser(tmp_path_factory: pytest.TempPathFactory) -> RequestParser:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    text, vocabulary = Text.load(folder), 1000
    model = ServedModel(
        name="tiny",
        context_length=CONTEXT,
        vocabulary_size=vocabulary,
        revision="r1",
        has_chat_template=False,
        end_ids=(),
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
