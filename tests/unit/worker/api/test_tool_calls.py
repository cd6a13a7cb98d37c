"""Calls as models of several families write them, however their text is cut into pieces."""

import json
from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outrider.contract.inference import Timing, Usage
from outrider.worker.api.http.choice import ChatChoice
from outrider.worker.api.http.tool_calls import Calling, ToolCalls
from outrider.worker.api.response import AnswerEnd, GenerateResponse
from outrider.worker.messages import Finish

FUNCTIONS = ("add", "note")
ADD, NOTE = '{"a": 1, "b": [2, {}]}', '{\n "text": "K\\"}]\\\\<tool_call>ö {"}'
Read = tuple[str, list[tuple[str, str]], bool]
"""Text, calls as names and arguments, and whether all of them are whole."""

WRITTEN: dict[str, tuple[str, str, list[tuple[str, str]]]] = {
    "Hermes": (
        f'<tool_call>\n{{"name": "add", "arguments": {ADD}}}\n</tool_call>',
        "",
        [("add", ADD)],
    ),
    "Hermes, two between texts": (
        f'Now: <tool_call>{{"name": "add", "arguments": {ADD}}}</tool_call>\n'
        f'<tool_call>\n{{"name": "note", "arguments": {NOTE} }}\n</tool_call> So.',
        "Now:  So.",
        [("add", ADD), ("note", NOTE)],
    ),
    "Hermes, arguments first": (
        f'\n<tool_call>\n{{ "arguments": {NOTE}, "name": "note"}}\n</tool_call> \n',
        "",
        [("note", NOTE)],
    ),
    "arguments in a string": (
        '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>',
        "",
        [("add", '{"a": 1}')],
    ),
    "no arguments": ('<tool_call>{"name": "add"}</tool_call>', "", [("add", "{}")]),
    "of no function that was given": (
        '<tool_call>{"name": "sub", "arguments": {}}</tool_call>',
        "",
        [("sub", "{}")],
    ),
    "no closing tag": (f'<tool_call>{{"name": "add", "arguments": {ADD}}}', "", [("add", ADD)]),
    "Llama 3": (f'{{"name": "add", "parameters": {ADD}}}', "", [("add", ADD)]),
    "Llama 3.2": (
        f'{{"type": "function", "function": "add", "parameters": {ADD}}}',
        "",
        [("add", ADD)],
    ),
    "Llama 3, two": (
        f'{{"name": "add", "parameters": {ADD}}}; {{"name": "note", "parameters": {NOTE}}}',
        "",
        [("add", ADD), ("note", NOTE)],
    ),
    "Llama 3, python_tag": (
        f'<|python_tag|>{{"name": "note", "parameters": {NOTE}}}',
        "",
        [("note", NOTE)],
    ),
    "Mistral": (
        f'[TOOL_CALLS] [{{"name": "add", "arguments": {ADD}, "id": "a1b2c3d4e"}}, '
        f'{{"name": "note", "arguments": {NOTE}}}]',
        "",
        [("add", ADD), ("note", NOTE)],
    ),
    "Mistral, newer": (
        f"Well.[TOOL_CALLS]add[ARGS]{ADD}[TOOL_CALLS]note[CALL_ID]a1b2c3d4e[ARGS]{NOTE}",
        "Well.",
        [("add", ADD), ("note", NOTE)],
    ),
    "Phi-4": (
        f'<|tool_call|>[{{"name": "add", "arguments": {ADD}}}]<|/tool_call|>',
        "",
        [("add", ADD)],
    ),
    "fenced": (f'```json\n{{"name": "add", "arguments": {ADD}}}\n```', "", [("add", ADD)]),
    "fenced, a list": (
        f'\n```\n[{{"name": "add", "arguments": {ADD}}}, '
        f'{{"name": "note", "arguments": {NOTE}}}]\n```\n',
        "",
        [("add", ADD), ("note", NOTE)],
    ),
    "fenced, two before a text": (
        f'```json\n{{"name": "add", "arguments": {ADD}}}\n```\n'
        f'```json\n{{"name": "note", "arguments": {NOTE}}}\n```\nSo.',
        "\nSo.",
        [("add", ADD), ("note", NOTE)],
    ),
    "fenced, not closed": (f'```json\n{{"name": "add", "arguments": {ADD}}}', "", [("add", ADD)]),
    "a call behind what is none": (
        f'<tool_call>x <tool_call>{{"name": "add", "arguments": {ADD}}}</tool_call>',
        "<tool_call>x",
        [("add", ADD)],
    ),
}


def read(pieces: Iterable[str], calling: Calling = Calling.MANY) -> Read:
    """Text and calls of an answer, as its stream and its message show them alike."""
    found = ToolCalls(calling, FUNCTIONS)
    shown, streamed = "", list[tuple[str, str]]()
    for delta in [*(delta for piece in pieces for delta in found.push(piece)), *found.finish()]:
        shown += delta.get("content", "")
        for call in delta.get("tool_calls", ()):
            function = call["function"]
            if "id" in call:
                assert set(call) == {"index", "id", "type", "function"}
                assert (call["index"], function["arguments"]) == (len(streamed), "")
                streamed.append((function["name"], ""))
            else:
                assert set(call) == {"index", "function"}
                assert set(function) == {"arguments"}
                assert call["index"] == len(streamed) - 1
                name, so_far = streamed[-1]
                streamed[-1] = (name, so_far + function["arguments"])
    functions = [call["function"] for call in found.calls]
    assert streamed == [(one["name"], one["arguments"]) for one in functions]
    return shown, streamed, found.complete


def pieces_of(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@pytest.mark.parametrize("family", WRITTEN)
def test_a_call_is_read_whatever_its_pieces_are(family: str) -> None:
    written, text, calls = WRITTEN[family]
    for size in range(1, len(written) + 1):
        assert read(pieces_of(written, size)) == (text, calls, True), size
    for at in range(len(written)):
        assert read([written[:at], "", written[at:]]) == (text, calls, True), at


@pytest.mark.parametrize("family", WRITTEN)
def test_of_an_answer_that_is_cut_off_nothing_is_lost(family: str) -> None:
    """It shows the first of the text and of the calls; what is no call yet is text."""
    written, whole_text, whole = WRITTEN[family]
    for end in range(len(written)):
        text, calls, complete = read(written[:end])
        assert [name for name, _ in calls] == [name for name, _ in whole[: len(calls)]]
        for (_, arguments), (_, all_of_them) in zip(calls, whole, strict=False):
            assert all_of_them.startswith(arguments)
        assert complete <= all(is_json(arguments) for _, arguments in calls)
        if not calls:
            assert text == written[:end]
        elif not whole_text.startswith(text):
            assert written[:end].rstrip().endswith(text.removeprefix(whole_text[:5]))


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Bob", "age": 3}',
        '{"name": "add"}',
        '{"name": "sub", "arguments": {}}',
        '{"city": "Rome", "name": "add", "arguments": {}}',
        "{x} is a set; {",
        "[1, 2]",
        "[",
        "  \n",
        "[TOOL_CALLS] is a tag, [TOOL_CALLS]sub{, is as well",
        '[TOOL_CALLS]sub[ARGS]{"a": 1}',
        "<tool_call>add it</tool_call>",
        '<tool_call>{"x": 1}</tool_call>',
        '<tool_call>{"name": 5, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "sub", <tool_call>',
        "<tool_call>{'name': 'add'}</tool_call>",
        '<tool_call>{"name": "add", "arguments": null}</tool_call>',
        '<tool_call>{"arguments": 5, "name": "add"}</tool_call>',
        '<tool_call>{"name": "add", "arguments": [{"a": 1}]}</tool_call>',
        '<tool_call>{"name": "add", "arguments": "Paris"}</tool_call>',
        '<tool_call>{"name": "add", "arguments": "[1]"}</tool_call>',
        '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1',
        '<tool_call>{"name": "add", "arguments": None}</tool_call>',
        '{"name": "add", "parameters": [1]}',
        "<|python_tag|>print(1)",
        '```json\n{"name": "Ada", "age": 36}\n```\nA person.',
        "```json\n[1, 2]\n```",
        "```python\nprint(1)\n```",
        "```js",
        "``` ",
        "``",
        f'Text:\n```json\n{{"name": "add", "arguments": {ADD}}}\n```',
        f'Text, and then {{"name": "add", "arguments": {ADD}}}',
    ],
)
def test_what_only_looks_like_a_call_is_text(text: str) -> None:
    for size in range(1, len(text) + 1):
        assert read(pieces_of(text, size)) == (text, [], False)


PARTS = st.sampled_from(
    [
        *("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "{", "}", "["),
        *("]", ",", ";", ":", '"', "\\", " ", "\n", "add", "name", "arguments", '{"name": "add", '),
        *(
            '"arguments": ',
            '"parameters": {',
            '{"a": 1}',
            '{"name": "sub"',
            "x",
            "<",
            "null",
            "```",
            "json\n",
            "`",
        ),
    ]
)


@given(st.lists(PARTS, max_size=12), st.sampled_from([Calling.MANY, Calling.ONE]))
@example(['{"name": "add", ', '"arguments": ', '{"a": 1}', "}", " ", "<"], Calling.MANY)
@example(['{"city": "<tool_call>{"name": "add"}', ""], Calling.MANY)
def test_pieces_make_no_difference(parts: list[str], calling: Calling) -> None:
    whole = "".join(parts)
    assert read(parts, calling) == read(whole, calling) == read([whole], calling)
    text, calls, complete = read([whole], calling)
    assert calls or text == whole
    assert not complete or all(is_json(arguments) for _, arguments in calls)


@pytest.mark.parametrize("arguments", ["{'a': 1}", '{"a": 1,}', '{"a": NaN}'])
def test_arguments_that_are_no_json_come_as_they_were_written(arguments: str) -> None:
    written = f'<tool_call>{{"name": "add", "arguments": {arguments}}}</tool_call>'
    assert read(written) == ("", [("add", arguments)], False)


def test_arguments_end_with_the_tag_behind_them() -> None:
    written = '<tool_call>{"name": "add", "arguments": {"a": 1</tool_call> Sorry.'
    assert read(written) == (" Sorry.", [("add", '{"a": 1')], False)


def test_only_the_tags_of_the_model_begin_a_call() -> None:
    found = ToolCalls(Calling.MANY, FUNCTIONS, ("[TOOL_CALLS]",))
    other = WRITTEN["Hermes"][0]
    deltas = found.push(f"In words: {other}") + found.finish()
    assert "".join(delta["content"] for delta in deltas) == f"In words: {other}"


def test_of_several_calls_the_first_alone_is_kept_where_one_is_wanted() -> None:
    written, text, calls = WRITTEN["Hermes, two between texts"]
    assert read(written, Calling.ONE) == (text, calls[:1], True)


@pytest.mark.parametrize("family", ["Hermes", "Llama 3", "Mistral", "Mistral, newer"])
def test_each_piece_of_the_arguments_is_shown_at_once(family: str) -> None:
    written = WRITTEN[family][0]
    at = written.index(ADD)
    found = ToolCalls(Calling.MANY, FUNCTIONS)
    found.push(written[:at])
    for character in ADD:
        calls = [call for delta in found.push(character) for call in delta["tool_calls"]]
        assert "".join(call["function"]["arguments"] for call in calls) == character


@pytest.mark.parametrize("finish", [Finish.LENGTH, Finish.STOP])
def test_a_call_that_is_cut_off_keeps_the_reason(finish: Finish) -> None:
    choice = ChatChoice(0, Calling.MANY, FUNCTIONS)
    choice.take(GenerateResponse('{"name": "add", "parameters": {"a": '))
    choice.take(GenerateResponse("", end=AnswerEnd(finish, Usage(), Timing(), 1)))
    whole = choice.whole()
    assert (whole["finish_reason"], whole["message"]["content"]) == (finish.value, None)
    assert whole["message"]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": '}


@pytest.mark.parametrize("calls", ["", WRITTEN["Hermes"][0]])
def test_blanks_around_calls_are_neither_streamed_nor_in_the_message(calls: str) -> None:
    written = f"\n I add. \n{calls} \n"
    shown = "\n I add." if calls else written
    for size in range(1, len(written) + 1):
        choice = ChatChoice(0, Calling.MANY, FUNCTIONS)
        end = GenerateResponse("", end=AnswerEnd(Finish.STOP, Usage(), Timing(), 1))
        responses = [*map(GenerateResponse, pieces_of(written, size)), end]
        deltas = [chunk["delta"] for response in responses for chunk in choice.take(response)]
        assert "".join(delta.get("content", "") for delta in deltas) == shown
        assert choice.whole()["message"]["content"] == shown
