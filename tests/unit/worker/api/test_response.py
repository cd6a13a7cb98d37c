"""Responses to one request, of events that come in an unlucky order."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from outrider.contract.inference import Timing, Usage
from outrider.worker.api.response import Admitted, GenerateResponse, Responses, ShownTree
from outrider.worker.api.text import Detokenizer, StopStrings, Text
from outrider.worker.messages import (
    Cancel,
    Finish,
    Finished,
    PassTree,
    Submit,
    TokenLogprob,
    Tokens,
)
from outrider.worker.sampling.params import SamplingParams
from tests.tiny_models import write_tokenizer
from tests.unit.worker.handles import Handle


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Text:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    return Text.load(folder)


async def answer(text: Text, finish: Finish) -> tuple[list[GenerateResponse], Handle]:
    """A text with a stop string inside, whose engine ends it so before it hears of that."""
    ids = text.encode("one two three", special=False)
    handle = Handle()
    submit = Submit(1, np.array(ids, np.int32), SamplingParams(), len(ids), (), True, 0.0)
    events = handle.submit(submit)
    events.put_nowait(Tokens(1, tuple(ids)))
    events.put_nowait(Finished(1, finish, Usage(), Timing(), "too late"))
    admitted = Admitted(submit, events, Detokenizer(text), StopStrings(("two",)), None)
    return [part async for part in Responses(handle, text).of(admitted)], handle


def test_a_tree_is_shown_as_text(text: Text) -> None:
    ids = text.encode("one two", special=False)
    submit = Submit(1, np.array(ids, np.int32), SamplingParams(), 9, (), True, 0.0)
    tree = PassTree((ids[0], ids[1], ids[0]), (0, 1), (1,), ids[1])

    async def first() -> GenerateResponse:
        handle = Handle()
        events = handle.submit(submit)
        events.put_nowait(Tokens(1, (ids[1], ids[1]), tree=tree))
        admitted = Admitted(submit, events, Detokenizer(text), StopStrings(()), None)
        return await anext(Responses(handle, text).of(admitted))

    one, other = (text.tokens[token].decode() for token in ids[:2])
    assert asyncio.run(first()).tree == ShownTree((one, other, one), (0, 1), (1,), other)


def test_an_id_that_the_tokenizer_lacks_is_empty_text(text: Text) -> None:
    ids = text.encode("one", special=False)
    known, past = text.tokens[ids[0]], len(text.tokens)
    submit = Submit(1, np.array(ids, np.int32), SamplingParams(), 9, (), True, 0.0)
    tree = PassTree((ids[0], past), (0,), (), past)
    logprobs = (TokenLogprob(-1.0, ((past, -1.0),)), TokenLogprob(-2.0, ((past, -2.0),)))

    async def first() -> GenerateResponse:
        handle = Handle()
        events = handle.submit(submit)
        events.put_nowait(Tokens(1, (ids[0], past), logprobs=logprobs, tree=tree))
        admitted = Admitted(submit, events, Detokenizer(text), StopStrings(()), None)
        return await anext(Responses(handle, text).of(admitted))

    shown = asyncio.run(first())
    assert shown.text == known.decode()
    assert shown.tree == ShownTree((known.decode(), ""), (0,), (), "")
    assert [one.token.text for one in shown.logprobs] == [known, b""]
    assert [one.top[0].text for one in shown.logprobs] == [b"", b""]


@pytest.mark.parametrize("finish", [Finish.LENGTH, Finish.FAILED, Finish.EXPIRED, Finish.STOP])
def test_a_stop_string_is_the_end_whatever_its_engine_did_meanwhile(
    text: Text, finish: Finish
) -> None:
    parts, handle = asyncio.run(answer(text, finish))
    assert "".join(part.text for part in parts) == "one "
    assert parts[-1].end is not None
    assert parts[-1].end.finish is Finish.STOP
    assert Cancel(1, Finish.STOP) in handle.sent
