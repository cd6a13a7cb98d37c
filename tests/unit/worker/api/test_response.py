"""Responses to one request, of events that come in an unlucky order."""

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from outrider.contract.inference import Timing, Usage
from outrider.worker.api.answer_text import AnswerText
from outrider.worker.api.response import Admitted, GenerateResponse, Responses, ShownTree
from outrider.worker.api.text import Detokenizer, StopStrings, Text
from outrider.worker.messages import (
    Cancel,
    EngineReport,
    Finish,
    Finished,
    PassTree,
    Submit,
    TokenLogprob,
    Tokens,
)
from outrider.worker.sampling.params import SamplingParams
from tests.unit.worker.handles import Handle


def admit(handle: Handle, text: Text, submit: Submit, *stops: str) -> Admitted:
    """A request whose text ends with any of some stop strings."""
    answer = AnswerText(Detokenizer(text), StopStrings(stops))
    return Admitted(submit, handle.submit(submit, answer), answer, None)


def test_a_tree_is_shown_as_text(text: Text) -> None:
    ids = text.encode("one two", special=False)
    submit = Submit(1, np.array(ids, np.int32), SamplingParams(), 9, (), True, 0.0)
    tree = PassTree((ids[0], ids[1], ids[0]), (0, 1), (1,), ids[1])

    async def first() -> GenerateResponse:
        handle = Handle()
        admitted = admit(handle, text, submit)
        handle.deliver([Tokens(1, (ids[1], ids[1]), tree=tree)])
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
        admitted = admit(handle, text, submit)
        handle.deliver([Tokens(1, (ids[0], past), logprobs=logprobs, tree=tree)])
        return await anext(Responses(handle, text).of(admitted))

    shown = asyncio.run(first())
    assert shown.text == known.decode()
    assert shown.tree == ShownTree((known.decode(), ""), (0,), (), "")
    assert [one.token.text for one in shown.logprobs] == [known, b""]
    assert [one.top[0].text for one in shown.logprobs] == [b"", b""]


COUNT = 20
BLOCK = "abcdefghijklmnopqrst"
"""Twenty tokens of one byte each: those of one message, which passes of accepted draft tokens
brought."""
USAGE = Usage(completion_tokens=COUNT, passes=3, draft_rows=24, accepted_rows=16)
ASKED = Submit(
    1, np.array([1], np.int32), SamplingParams(), COUNT, (), True, 0.0, ends_by_text=True
)


async def block(
    text: Text, stops: Sequence[str], finish: Finish, read: bool = True
) -> tuple[Handle, list[GenerateResponse]]:
    """What is made of a message whose engine ends the answer so, before it hears of the text."""
    handle = Handle()
    admitted = admit(handle, text, ASKED, *stops)
    logprobs = tuple(TokenLogprob(-float(at), ()) for at in range(COUNT))
    tokens = Tokens(1, tuple(BLOCK.encode()), (1, 8, 8, 3), logprobs)
    report = EngineReport()
    handle.deliver([tokens, Tokens(1, (65,), (1,)), Finished(1, finish, USAGE, Timing(), "late")])
    handle.deliver([report, report])
    parts = [part async for part in Responses(handle, text).of(admitted)] if read else []
    return handle, parts


@pytest.mark.parametrize("finish", [Finish.LENGTH, Finish.FAILED, Finish.EXPIRED, Finish.STOP])
@pytest.mark.parametrize(
    ("stops", "shown", "kept", "passes"),
    [
        (("c",), "ab", 3, 2),
        (("hij", "jk"), "abcdefg", 10, 3),
        (("a",), "", 1, 1),
        (("t",), BLOCK[:-1], 20, 4),
    ],
)
def test_an_answer_ends_with_the_token_that_completes_a_stop_string(
    text: Text, stops: tuple[str, ...], shown: str, kept: int, passes: int, finish: Finish
) -> None:
    """Whatever came with it, and whatever its engine did meanwhile."""
    handle, (part, last) = asyncio.run(block(text, stops, finish))
    assert part.text + last.text == shown
    assert bytes(part.token_ids).decode() == BLOCK[:kept]
    assert [one.token.logprob for one in part.logprobs] == [-float(at) for at in range(kept)]
    assert part.passes == passes
    assert last.end is not None
    assert last.end.finish is Finish.STOP
    usage = last.end.usage
    assert (usage.completion_tokens, usage.passes) == (kept, passes - 1)
    assert usage.accepted_rows <= kept
    assert handle.sent == [ASKED, Cancel(1, Finish.STOP)]


def test_the_counters_and_those_who_listen_learn_of_no_token_behind_a_stop_string(
    text: Text,
) -> None:
    """Also where nobody reads the answer: other choices come first."""
    handle, _ = asyncio.run(block(text, ("hij",), Finish.LENGTH, read=False))
    assert [len(event.ids) for event in handle.heard if isinstance(event, Tokens)] == [10]
    (end,) = (event for event in handle.heard if isinstance(event, Finished))
    assert (end.finish, end.usage.completion_tokens) == (Finish.STOP, 10)
    counters = handle.report.counters
    assert (counters.generation_tokens, counters.requests_finished) == (10, 1)
    assert counters.requests_at_length == 0


def test_an_answer_without_its_stop_string_is_whole(text: Text) -> None:
    handle, parts = asyncio.run(block(text, ("zz",), Finish.LENGTH))
    assert "".join(part.text for part in parts) == BLOCK + "A"
    assert parts[-1].end is not None
    assert (parts[-1].end.finish, parts[-1].end.usage) == (Finish.LENGTH, USAGE)
    assert handle.report.counters.generation_tokens == COUNT + 1
    assert handle.report.counters.requests_at_length == 1
