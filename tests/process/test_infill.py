"""llama-server's /infill of a real target, with the bodies of an editor."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from outrider.contract.settings import Role
from tests import llama_vim
from tests.process import workers
from tests.process.conftest import Folders
from tests.process.event_stream import data_of
from tests.process.workers import ANSWER_SECONDS, Worker
from tests.tiny_models import write_tokenizer

PRE, SUF, MID, REP, SEP = FIM = 1, 2, 3, 4, 5
"""Bytes of a tiny model, which no code has, as its tokens to fill in the middle."""
CHUNK = {"text": "a = 1\n" * 20, "filename": "a.py", "time": [1, 2]}
FILES = bytes([REP, *b"project\n", SEP, *b"a.py\n", *b"a = 1\n" * 20, SEP, *b"file\n"])


@pytest.fixture(scope="module")
def http(folders: Folders, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    model: Path = tmp_path_factory.mktemp("coder") / "coder"
    shutil.copytree(folders.target, model)
    roles = ("pre", "suf", "mid", "rep", "sep")
    write_tokenizer(model, fim_token_ids=dict(zip(roles, FIM, strict=True)))
    settings = workers.settings_for(Role.TARGET, model, folders.cache)
    with (
        workers.started(settings, folders.logs) as coder,
        httpx.Client(base_url=coder.url, timeout=ANSWER_SECONDS, trust_env=False) as made,
    ):
        yield made


def post(http: httpx.Client, path: str, body: dict[str, Any]) -> Any:
    answer = http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def raw(http: httpx.Client, prompt: bytes, **options: Any) -> str:
    """The answer to a prompt whose tokens are these bytes."""
    body = {"prompt": list(prompt), "temperature": 0, **options}
    text: str = post(http, "/v1/completions", body)["choices"][0]["text"]
    return text


# The tiny model's own answers end sooner than those to the raw prompt where it writes one of `FIM`.


def test_llama_vim_warms_up_and_completes(http: httpx.Client) -> None:
    assert post(http, "/infill", llama_vim.warm_up(CHUNK)) == {}
    wanted = llama_vim.completion("def f():\n", "\nf()\n", "    return", CHUNK)
    found = post(http, "/infill", wanted | {"n_indent": 0, "t_max_predict_ms": 0})
    assert found.keys() == set(llama_vim.FIELDS)
    laid_out = FILES + bytes([PRE, *b"def f():\n    return", SUF, *b"\nf()\n", MID])
    assert found["content"]
    assert raw(http, laid_out, max_tokens=128).startswith(found["content"])
    assert found["tokens_cached"] + found["timings/prompt_n"] == len(laid_out)
    assert found["tokens_cached"] >= len(FILES) // 2
    assert not found["truncated"]


@pytest.mark.parametrize("token", FIM)
def test_an_answer_ends_with_each_token_to_fill_in_the_middle(
    http: httpx.Client, token: int
) -> None:
    forced = {"logit_bias": {str(token): 100.0}}
    body = {"input_prefix": "a", "input_suffix": "b"} | forced
    found = post(http, "/infill", body)
    ends = (found["content"], found["stop_type"], found["tokens_predicted"])
    assert ends == ("", "eos", 1)
    answer = post(http, "/v1/completions", {"prompt": "a", "suffix": "b"} | forced)
    assert answer["choices"][0] | {"text": ""} == answer["choices"][0]
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_a_suffix_of_a_completion_is_laid_out_alike(http: httpx.Client) -> None:
    body = {"prompt": "ab", "suffix": "cd", "max_tokens": 40, "temperature": 0}
    found = post(http, "/v1/completions", body)["choices"][0]["text"]
    assert found
    laid_out = bytes([PRE, *b"ab", SUF, *b"cd", MID])
    assert raw(http, laid_out, max_tokens=40).startswith(found)


@pytest.mark.parametrize(
    ("letter", "change", "stop_type", "word"),
    [
        ("\n", {"n_indent": 4}, "limit", ""),
        ("\n", {"n_indent": 0}, "limit", ""),
        ("a", {"stop": ["aaa"]}, "word", "aaa"),
        ("a", {"n_indent": 4, "stop": ["aaa"]}, "word", "aaa"),
    ],
)
def test_limits_on_lines_and_stop_strings_end_an_answer(
    http: httpx.Client, letter: str, change: dict[str, Any], stop_type: str, word: str
) -> None:
    body = {"input_prefix": "a", "input_suffix": "b", "n_predict": 50}
    found = post(http, "/infill", body | {"logit_bias": {str(ord(letter)): 100.0}} | change)
    all_of_them = stop_type == "limit" and not change["n_indent"]
    assert found["content"] == ("\n" * 50 if all_of_them else "")
    assert (found["stop_type"], found["stopping_word"]) == (stop_type, word)


def test_a_stream_ends_with_what_a_whole_answer_says(http: httpx.Client) -> None:
    body = {"input_prefix": "ab", "input_suffix": "cd", "n_predict": 30}
    whole = post(http, "/infill", body)
    answer = http.post("/infill", json=body | {"stream": True})
    events = [json.loads(data) for data in data_of(answer.text)]
    assert "".join(event["content"] for event in events) == whole["content"]
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]
    assert events[-1]["tokens_predicted"] == whole["tokens_predicted"]


def test_a_long_file_is_cut_to_the_context(http: httpx.Client) -> None:
    body = {"input_prefix": "a\n" * 9000, "input_suffix": "b\n" * 9000, "n_predict": 20}
    found = post(http, "/infill", body)
    assert 1500 < found["tokens_evaluated"] <= 2048 - 20
    assert found["tokens_predicted"] <= 20


def test_a_model_that_cannot_fill_in_the_middle_says_so(target: Worker) -> None:
    for path, body, param in (
        ("/infill", {"input_prefix": "a", "input_suffix": "b"}, "input_suffix"),
        ("/v1/completions", {"prompt": "a", "suffix": "b"}, "suffix"),
    ):
        answer = httpx.post(f"{target.url}{path}", json=body, trust_env=False)
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, param)
        assert "no tokens to fill in the middle" in error["message"]
