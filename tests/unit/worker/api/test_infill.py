"""llama-server's /infill: what a body of an editor asks for, and how the answer looks."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from outrider.contract.inference import Timing, Usage
from outrider.worker.api.fim import File, FimPrompt
from outrider.worker.api.http import errors
from outrider.worker.api.http.from_openai import OpenAIRequest
from outrider.worker.api.http.infill import InfillBody, InfillResponse, infill
from outrider.worker.api.response import AnswerEnd, GenerateResponse
from outrider.worker.messages import Finish
from tests import llama_vim
from tests.llama_vim import CHUNK

AROUND = {"input_prefix": "def f():\n", "input_suffix": "\n"}
CONTEXT = 100
USAGE = {"prompt_tokens": 40, "cached_prompt_tokens": 30, "completion_tokens": 8}


def converted(body: dict[str, Any]) -> OpenAIRequest:
    return infill(InfillBody.model_validate_json(json.dumps(body)))


def asked(**fields: Any) -> OpenAIRequest:
    return converted(AROUND | fields)


def test_llama_vims_completion_is_read() -> None:
    found = converted(llama_vim.completion("def f():\n", "\nf()\n", "    return", CHUNK))
    files = (File("paths.py", str(CHUNK["text"])),)
    prompt = FimPrompt("def f():\n    return", "\nf()\n", 128, files, "input_suffix")
    assert found.prompts == (prompt,)
    assert (found.max_tokens, found.prompt_only, found.stream) == (128, False, False)
    assert (found.request.least_indent, found.request.line_seconds) == (4, 0.25)
    sampling = found.request.sampling_params({"temperature": 0.7, "repetition_penalty": 1.1})
    assert (sampling.temperature, sampling.repetition_penalty, sampling.top_k) == (0.0, 1.0, 40)


def test_llama_vims_warm_up_reads_the_prompt_alone() -> None:
    found = converted(llama_vim.warm_up(CHUNK))
    assert found.prompt_only
    assert found.max_tokens == 1
    response = InfillResponse(found, "m", CONTEXT)
    response.take(0, GenerateResponse("x", (1,)))
    response.take(0, last(Finish.LENGTH))
    assert response.whole() == {}


def test_what_an_editor_leaves_out_has_a_default() -> None:
    found = asked()
    assert found.max_tokens == asked(n_predict=-1).max_tokens == 256
    assert not found.request.limits_lines
    assert not asked(n_indent=0, t_max_predict_ms=0).request.limits_lines
    assert asked(temperature=0.5).request.sampling["temperature"] == 0.5
    assert asked(input_extra=[{"text": "x"}]).prompts[0] == FimPrompt(
        "def f():\n", "\n", 256, (File("", "x"),), "input_suffix"
    )


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input_prefix": 7}, "input_prefix"),
        ({"input_suffix": None}, "input_suffix"),
        ({"input_extra": [{"filename": "a"}]}, "input_extra[0].text"),
        ({"input_extra": [{"text": "a", "filename": 1}]}, "input_extra[0].filename"),
        ({"input_extra": "a"}, "input_extra"),
        ({"prompt": ["a"]}, "prompt"),
        ({"n_predict": -2}, "n_predict"),
        ({"n_predict": "7"}, "n_predict"),
        ({"n_indent": -1}, "n_indent"),
        ({"t_max_predict_ms": 0.5}, "t_max_predict_ms"),
        ({"response_fields": "content"}, "response_fields"),
        ({"response_fields": ["a"] * 65}, "response_fields"),
        ({"response_fields": ["a/" * 33]}, "response_fields[0]"),
        ({"n": 2}, "n"),
    ],
)
def test_a_field_of_a_wrong_type_is_refused_by_name(change: dict[str, Any], param: str) -> None:
    with pytest.raises(ValidationError) as found:
        asked(**change)
    assert errors.unreadable(found.value).param == param


def last(finish: Finish = Finish.STOP, word: str | None = None, **more: int) -> GenerateResponse:
    timing = Timing(queued_seconds=0.5, first_token_seconds=2.5, decode_seconds=0.25)
    return GenerateResponse("", end=AnswerEnd(finish, Usage(**USAGE | more), timing, 11, word))


def answer(end: GenerateResponse, **fields: Any) -> dict[str, Any]:
    response = InfillResponse(asked(**fields), "m", CONTEXT)
    response.take(0, GenerateResponse("a\n", (1,)))
    response.take(0, GenerateResponse("b", (2,)))
    response.take(0, end)
    return response.whole()


def test_the_answer_says_what_llama_servers_says() -> None:
    assert answer(last()) == {
        "index": 0,
        "content": "a\nb",
        "stop": True,
        "model": "m",
        "stop_type": "eos",
        "stopping_word": "",
        "has_new_line": True,
        "truncated": False,
        "tokens_cached": 30,
        "tokens_evaluated": 40,
        "tokens_predicted": 8,
        "timings": {
            "cache_n": 30,
            "prompt_n": 10,
            "prompt_ms": 2000.0,
            "prompt_per_token_ms": 200.0,
            "prompt_per_second": 5.0,
            "predicted_n": 8,
            "predicted_ms": 250.0,
            "predicted_per_token_ms": 31.25,
            "predicted_per_second": 32.0,
            "draft_n": 0,
            "draft_n_accepted": 0,
        },
    }
    nothing = answer(last(), n_predict=0)
    assert (nothing["content"], nothing["tokens_predicted"]) == ("", 0)
    assert nothing["timings"]["predicted_per_second"] == 0.0


@pytest.mark.parametrize(
    ("end", "stop_type", "word", "truncated"),
    [
        (last(), "eos", "", False),
        (last(word="end"), "word", "end", False),
        (last(word=""), "limit", "", False),
        (last(Finish.LENGTH), "limit", "", False),
        (last(Finish.LENGTH, completion_tokens=60), "limit", "", True),
        (last(completion_tokens=60), "eos", "", False),
    ],
)
def test_the_answer_says_why_it_ends(
    end: GenerateResponse, stop_type: str, word: str, truncated: bool
) -> None:
    found = answer(end)
    assert (found["stop_type"], found["stopping_word"]) == (stop_type, word)
    assert found["truncated"] is truncated


def test_wanted_fields_keep_the_names_by_which_they_are_wanted() -> None:
    wanted = ["content", "timings/prompt_n", "timings/none", "content/x", ""]
    found = answer(last(), response_fields=wanted)
    assert found == {"content": "a\nb", "timings/prompt_n": 10}
    assert len(answer(last(), response_fields=[])) == 12


def test_a_stream_has_texts_and_then_all_else() -> None:
    response = InfillResponse(asked(stream=True), "m", CONTEXT)
    assert response.begin() == []
    assert response.take(0, GenerateResponse("", (1,))) == []
    assert response.take(0, GenerateResponse("a", (1,))) == [
        {"index": 0, "content": "a", "stop": False}
    ]
    (end,) = response.take(0, last())
    assert (end["content"], end["stop"], end["stop_type"]) == ("", True, "eos")
    assert (response.end(), response.last) == ([], b"")
