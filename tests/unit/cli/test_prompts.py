"""Prompts from the command line and from standard input, and how their answers are shown."""

import asyncio
import io
from typing import Any, cast

import pytest

from outrider.cli.failures import BadInput
from outrider.cli.run.prompts import PromptSet, Screen, ask, with_stdin
from outrider.client import AsyncClient, Chunk, Result


def test_a_dash_is_standard_input_without_its_last_newline() -> None:
    assert with_stdin(["a", "-"], io.BytesIO(b"Why?\n\nBlue.\n")) == ["a", "Why?\n\nBlue."]
    assert with_stdin(["-"], io.BytesIO("ä".encode())) == ["ä"]


def test_standard_input_is_left_alone_where_nobody_asks_for_it() -> None:
    stdin = io.BytesIO(b"text")
    assert with_stdin(["a", "--"], stdin) == ["a", "--"]
    assert stdin.read() == b"text"


@pytest.mark.parametrize(
    ("prompts", "stdin", "words"),
    [
        (["-", "-"], b"text", "'-' is there 2 times; allowed: once"),
        (["-"], b"\n", "standard input: no text"),
        (["-"], b"\xff", "standard input: not UTF-8 text"),
    ],
)
def test_input_that_is_no_prompt_is_refused(prompts: list[str], stdin: bytes, words: str) -> None:
    with pytest.raises(BadInput) as refusal:
        with_stdin(prompts, io.BytesIO(stdin))
    assert str(refusal.value) == words


class Answering:
    """A client whose model, without a chat template, answers each prompt in pieces."""

    result = cast(Result, object())

    async def models(self) -> list[Any]:
        return [type("Model", (), {"has_chat_template": False})]

    def __init__(self) -> None:
        self.options: list[dict[str, Any]] = []

    def generate(self, prompt: str, **options: Any) -> "Answering":
        self.options.append(options)
        return self

    async def __aenter__(self) -> "Answering":
        return self

    async def __aexit__(self, *error: object) -> None:
        """Nothing is open."""

    async def __aiter__(self) -> Any:
        for piece in ("It", " is."):
            yield Chunk(piece, (), 0, ())


def test_an_answer_is_shown_piece_by_piece() -> None:
    shown: list[str] = []
    screen = Screen(shown.append, lambda chunk: shown.append(chunk.text), lambda: shown.append("."))

    async def answers() -> list[Result]:
        questions = PromptSet(prompts=["What?", "Why?"])
        return [one async for one in ask(cast(AsyncClient, Answering()), questions, screen)]

    assert len(asyncio.run(answers())) == 2
    assert shown == ["What?", "It", " is.", ".", "Why?", "It", " is.", "."]


@pytest.mark.parametrize("prediction", [None, "", "def f(): ..."])
def test_every_prompt_is_asked_with_the_prediction(prediction: str | None) -> None:
    client = Answering()

    async def answers() -> list[Result]:
        questions = PromptSet(prompts=["What?", "Why?"], prediction=prediction)
        silent = Screen(lambda prompt: None, lambda chunk: None, lambda: None)
        return [one async for one in ask(cast(AsyncClient, client), questions, silent)]

    asyncio.run(answers())
    assert [one.get("prediction") for one in client.options] == [prediction] * 2
