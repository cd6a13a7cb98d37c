"""/v1/responses: the chat that a body asks for, and the items and events of its answer."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from openai.types.responses import Response, ResponseErrorEvent

from outrider.worker.api.http.choice import ChatChoice
from outrider.worker.api.http.responses.body import ResponsesBody, from_responses
from outrider.worker.api.http.responses.output_items import OutputItems
from outrider.worker.api.http.responses.unserved import UNSERVED
from outrider.worker.api.http.schemas import ChatBody
from outrider.worker.api.http.tool_calls import Calling
from outrider.worker.api.prompt import Chat
from outrider.worker.api.response import GenerateResponse
from outrider.worker.api.text import Text
from outrider.worker.messages import Finish, Finished, Submit
from tests.unit.worker.api.scripted import Scripted, ScriptedHandle

RESPONSES = "/v1/responses"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "function", "name": "f", "parameters": CITY, "strict": True}
CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'


class Failing(ScriptedHandle):
    """An engine whose answers break off."""

    def messages(self, submit: Submit) -> list[Any]:
        *tokens, end = super().messages(submit)
        failed = Finished(submit.request, Finish.FAILED, end.usage, end.timing, "the cat did it")
        return [*tokens, failed]


def chat(**fields: Any) -> ChatBody:
    """Return the chat that a body asks for."""
    body = ResponsesBody.model_validate_json(json.dumps({"input": "hi"} | fields))
    return ChatBody.model_validate(body.chat)


def turns(*items: Any) -> list[dict[str, Any]]:
    """Return the turns of a chat of some items."""
    return [message.model_dump(exclude_unset=True) for message in chat(input=items).messages]


def events(target: Scripted, **body: Any) -> list[dict[str, Any]]:
    """Return the events of a stream, each of which is named by its type."""
    found = []
    for lines in target.post(RESPONSES, input="hi", stream=True, **body).text.split("\n\n")[:-1]:
        name, data = lines.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


def test_a_text_is_a_users_turn_behind_the_instructions() -> None:
    body = chat(input="hi", instructions="be brief")
    assert [(one.role, one.content) for one in body.messages] == [
        ("system", "be brief"),
        ("user", "hi"),
    ]
    assert [one.role for one in chat(input="hi").messages] == ["user"]


def test_an_assistants_texts_and_calls_are_one_turn_and_results_follow() -> None:
    said = {"type": "output_text", "text": "I look.", "annotations": []}
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}", "id": "fc1"}
    result = {"type": "function_call_output", "call_id": "c1"}
    calls = [
        {"id": one, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for one in ("c1", "c2")
    ]
    assert turns(
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}],
        },
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "?"}]},
        {"role": "assistant", "content": "Well."},
        {"type": "message", "role": "assistant", "content": [said]},
        call,
        call | {"call_id": "c2"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "Wait."}]},
        result | {"output": "18"},
        result | {"call_id": "c2", "output": [{"type": "input_text", "text": "19"}]},
        call | {"call_id": "c1"},
    ) == [
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "Well.\nI look.\nWait.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "18"},
        {"role": "tool", "tool_call_id": "c2", "content": "19"},
        {"role": "assistant", "content": "", "tool_calls": calls[:1]},
    ]


def test_what_an_answer_was_may_be_sent_back(text: Text) -> None:
    answer = Scripted(text, f"Hm. {CALL}".encode()).post(RESPONSES, input="hi", tools=[TOOL]).json()
    said, call = answer["output"]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "18"}
    _, assistant, tool = turns({"role": "user", "content": "hi"}, said, call, result)
    (made,) = assistant["tool_calls"]
    assert (assistant["content"], made["id"]) == ("Hm.", tool["tool_call_id"])
    assert made["function"] == {"name": "f", "arguments": '{"a": 1}'}


def test_options_reach_the_chat() -> None:
    schema = {"type": "json_schema", "name": "s", "schema": CITY, "strict": True}
    body = chat(
        tools=[TOOL],
        tool_choice={"type": "function", "name": "f"},
        parallel_tool_calls=False,
        text={"format": schema, "verbosity": "medium"},
        reasoning={"effort": "low", "summary": "auto"},
        max_output_tokens=7,
        temperature=0.5,
        top_p=0.25,
        top_k=3,
        stream=True,
        stream_options={"include_obfuscation": False},
        include=["reasoning.encrypted_content"],
        metadata={"a": "b"},
        store=False,
        top_logprobs=0,
        user="me",
    )
    function = {"name": "f", "parameters": CITY}
    assert json.loads(body.tools_json) == [{"type": "function", "function": function}]
    assert body.tools is not None
    assert body.tools[0].function.strict
    assert body.forms["response_format"].strict
    assert json.loads(body.forms["response_format"].json_schema or "") == CITY
    assert body.layout.variables == {"reasoning_effort": "low"}
    assert (body.max_tokens, body.temperature, body.top_p, body.top_k) == (7, 0.5, 0.25, 3)
    assert body.parallel_tool_calls is False
    assert body.stream
    assert chat(text={"format": {"type": "text"}}).forms == {}
    assert chat(text={"format": {"type": "json_object"}}).forms["response_format"].json_object


def test_a_function_that_is_named_must_be_called() -> None:
    body = ResponsesBody(
        input=[{"role": "user", "content": "hi"}],
        tools=[TOOL],
        tool_choice={"type": "function", "name": "f"},
    )  # type: ignore[arg-type]
    parsed = from_responses(body)
    assert (parsed.calling, parsed.functions) == (Calling.FORCED, ("f",))
    assert isinstance(parsed.prompts[0], Chat)


def test_a_response_is_what_openais_client_knows_and_repeats_what_was_asked(text: Text) -> None:
    asked = {
        "instructions": "be brief",
        "metadata": {"a": "b"},
        "tools": [TOOL | {"description": "of a city"}],
        "tool_choice": {"type": "function", "name": "f"},
        "temperature": 0.5,
        "top_p": 0.25,
        "max_output_tokens": 60,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "reasoning": {"effort": "low"},
        "parallel_tool_calls": False,
    }
    shown = Scripted(text).post(RESPONSES, input="x", **asked | {"tool_choice": "none"}).json()
    response = Response.model_validate(shown)
    assert (response.object, response.status, response.output_text) == (
        "response",
        "completed",
        "hello",
    )
    assert response.id.startswith("resp_")
    assert {name: shown[name] for name in asked} == asked | {"tool_choice": "none"}
    assert (shown["store"], shown["error"], shown["incomplete_details"]) == (False, None, None)
    assert response.usage is not None
    assert (
        response.usage.output_tokens,
        response.usage.output_tokens_details.reasoning_tokens,
    ) == (5, 0)
    assert response.usage.total_tokens == response.usage.input_tokens + 5
    assert "seed" in shown["outrider"]


def test_an_answer_that_is_cut_is_incomplete_and_so_is_its_last_item(text: Text) -> None:
    target = Scripted(text)
    shown = target.post(RESPONSES, input="hi", max_output_tokens=3).json()
    assert target.submits[0].max_tokens == 3
    assert (shown["status"], shown["incomplete_details"]) == (
        "incomplete",
        {"reason": "max_output_tokens"},
    )
    assert shown["output"][0]["status"] == "incomplete"
    *_, last = events(Scripted(text), max_output_tokens=3)
    assert (last["type"], last["response"]["status"]) == ("response.incomplete", "incomplete")


def test_an_answer_without_text_is_an_empty_message(text: Text) -> None:
    (item,) = Scripted(text, b"").post(RESPONSES, input="hi").json()["output"]
    assert (item["type"], item["content"][0]["text"]) == ("message", "")
    (item,) = Scripted(text, b"\n").post(RESPONSES, input="hi").json()["output"]
    assert item["content"][0]["text"] == "\n"


def types(events: Iterable[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def test_a_stream_shows_an_item_from_its_begin_to_its_end(text: Text) -> None:
    found = events(Scripted(text))
    assert types(found) == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *("output_text.delta", "output_text.done", "content_part.done", "output_item.done"),
        "completed",
    ]
    created, _, added, _, delta, done, _, ended, completed = found
    assert (created["response"]["output"], added["item"]["content"]) == ([], [])
    assert (delta["delta"], done["text"]) == ("hello", "hello")
    assert delta["item_id"] == done["item_id"] == added["item"]["id"] == ended["item"]["id"]
    assert completed["response"]["output"] == [ended["item"]]
    assert completed["response"]["id"] == created["response"]["id"]


@pytest.mark.parametrize("calling", [Calling.ONE, Calling.MANY])
def test_items_stand_in_the_order_in_which_they_were_written(calling: Calling) -> None:
    written = f"Now: {CALL} So."
    for at in range(len(written)):
        choice, output = ChatChoice(0, calling, ("f",)), OutputItems()
        pieces = map(GenerateResponse, (written[:at], written[at:]))
        shown = [
            event
            for piece in pieces
            for chunk in choice.take(piece)
            for event in output.take(chunk["delta"])
        ]
        assert [item.text for item in output.items] == ["Now:", '{"a": 1}', "  So."], at
        deltas = "".join(event["delta"] for event in shown if event["type"].endswith("delta"))
        assert deltas == 'Now:{"a": 1}  So.', at


def test_items_follow_each_other() -> None:
    output = OutputItems()
    first = {"id": "c1", "function": {"name": "f", "arguments": ""}}
    more = {"function": {"arguments": '{"a": 1}'}}
    assert types(output.take({"reasoning_content": "Hm"})) == [
        *("output_item.added", "content_part.added", "reasoning_text.delta"),
    ]
    begun = output.take({"tool_calls": [first]})
    assert types(begun) == [
        *("reasoning_text.done", "content_part.done", "output_item.done", "output_item.added"),
    ]
    (piece,) = output.take({"tool_calls": [more]})
    assert (piece["delta"], piece["output_index"]) == ('{"a": 1}', 1)
    done, *others = output.take({"tool_calls": [first | {"id": "c2"}]})
    assert types([done, *others]) == [
        *("function_call_arguments.done", "output_item.done", "output_item.added"),
    ]
    assert (done["name"], done["arguments"]) == ("f", '{"a": 1}')
    output.take({"content": " So"})
    output.take({"content": "\n"})
    assert types(output.end("incomplete"))[-1] == "output_item.done"
    thought, call, other, said = output.shown
    assert (thought["type"], thought["content"][0]["text"]) == ("reasoning", "Hm")
    assert [call[name] for name in ("type", "call_id", "name", "arguments", "status")] == [
        *("function_call", "c1", "f", '{"a": 1}', "completed"),
    ]
    assert (other["call_id"], other["arguments"]) == ("c2", "")
    assert (said["content"][0]["text"], said["status"]) == (" So\n", "incomplete")


def test_reasoning_is_an_item_before_the_text_and_its_tokens_are_counted(thinker: Text) -> None:
    target = Scripted(thinker, b"<think>\nHm.\n</think>\n\nYes.")
    shown = target.post(RESPONSES, input="hi", reasoning={"effort": "low"}).json()
    assert [item["type"] for item in shown["output"]] == ["reasoning", "message"]
    assert shown["output"][0]["content"] == [{"type": "reasoning_text", "text": "Hm."}]
    assert Response.model_validate(shown).output_text == "Yes."
    assert shown["usage"]["output_tokens_details"]["reasoning_tokens"] == 3


def test_an_answer_that_breaks_off_ends_its_item_and_its_stream_with_the_error(text: Text) -> None:
    *_, delta, done, part, item, error, failed = events(Scripted(text, handle=Failing))
    assert (delta["delta"], done["text"], part["part"]["text"]) == ("hello", "hello", "hello")
    assert (item["type"], item["item"]["status"]) == ("response.output_item.done", "incomplete")
    shown = ResponseErrorEvent.model_validate(error)
    assert (shown.type, shown.code, shown.param) == ("error", "server_error", None)
    assert set(error) == {"type", "code", "message", "param", "sequence_number"}
    assert (failed["type"], failed["response"]["status"]) == ("response.failed", "failed")
    assert failed["response"]["error"] == {"code": "server_error", "message": shown.message}
    assert failed["response"]["output"] == [item["item"]]


def test_an_answer_that_breaks_off_before_its_first_token_has_no_item(text: Text) -> None:
    *_, begun, error, failed = events(Scripted(text, b"", handle=Failing))
    assert types([begun, error, failed]) == ["in_progress", "error", "failed"]
    assert failed["response"]["output"] == []


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input": None}, "input"),
        ({"input": 3}, "input"),
        ({"input": []}, "input"),
        ({"input": "x" * 1000}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user"}]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": ""}]}, "input[0]"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": "x"}, "temperature"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [TOOL, TOOL]}, "tools"),
        ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
        ({"text": {"format": {"schema": CITY}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_object"}}, "ignore_eos": True}, "text.format"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"include": ["message.output_text.logprobs"]}, "include[0]"),
        ({"reasoning": {"effort": 3}}, "reasoning.effort"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"mirostat": 2}, "mirostat"),
        ({"n": 2}, "n"),
    ],
)
def test_a_body_that_is_wrong_is_refused_by_its_field(
    text: Text, change: dict[str, Any], param: str
) -> None:
    response = Scripted(text).post(RESPONSES, **{"input": "hi"} | change)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)
    assert response.json()["error"]["message"].partition(" ")[0].strip(":") in (param, "This")


@pytest.mark.parametrize("name", UNSERVED)
def test_what_would_change_the_answer_and_is_not_served_is_refused_by_name(
    text: Text, name: str
) -> None:
    error = Scripted(text).post(RESPONSES, input="hi", **{name: "auto"}).json()["error"]
    assert error["param"] == name
    assert error["message"].startswith(f"{name} is not supported here")
    for same in (None, *UNSERVED[name]):
        assert Scripted(text).post(RESPONSES, input="hi", **{name: same}).status_code == 200
