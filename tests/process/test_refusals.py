"""Nonsense and too much of anything: refused with the field and the limit, and nothing breaks."""

import contextlib
import dataclasses
import math
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from outrider.client import (
    ClientError,
    EngineState,
    InvalidRequest,
    Message,
    Overloaded,
    PolicySettings,
    Sampling,
)
from outrider.contract.settings import MIN_CONTEXT, Role
from outrider.protos.v1 import inference_pb2
from outrider.worker.server.serve import MAX_MESSAGE_BYTES
from tests.process.conftest import Folders
from tests.process.workers import Worker, answer, launch, settings_for, started
from tests.tiny_models import write_tiny

MEMORY = 48 << 20

GENERATE = "/outrider.protos.v1.Inference/Generate"
WIDE_CONTEXT = 1 << 17
STALL_SECONDS = 2.0
"""Far more than any answer to GetState takes, far less than 10 MB of text take to tokenize."""

REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    ("", {}, r"text: .*at least one character"),
    ([Message("wizard", "hi")], {}, r"chat\.messages\[0\]\.role: 'wizard'.*system, user"),
    ([], {}, r"tokens\.ids: .*at least one"),
    ([1, 2, 260], {}, r"tokens\.ids\[2\]: 260 .*below 260"),
    ("x" * 5000, {}, r"prompt: '5000 tokens'.*1 to 2047"),
    ([7] * 2048, {}, r"prompt: '2048 tokens'.*1 to 2047"),
    ("hello", {"max_tokens": 2044}, r"max_tokens: 2044 .*1 to 2043: the prompt has 5 .* 2048"),
    ("hello", {"max_tokens": 0}, r"max_tokens: 0 .*1 to 2043"),
    ("hello", {"max_tokens": 2**32 - 1}, r"max_tokens: 4294967295 .*1 to 2043"),
    ("hello", {"sampling": Sampling(top_p=2.0)}, r"sampling\.top_p: 2.0 .*\(0, 1\]"),
    ("hello", {"sampling": Sampling(top_p=0.0)}, r"sampling\.top_p: 0.0 .*\(0, 1\]"),
    ("hello", {"sampling": Sampling(top_p=math.nan)}, r"sampling\.top_p: nan .*\(0, 1\]"),
    (
        "hello",
        {"sampling": Sampling(temperature=math.nan)},
        r"sampling\.temperature: nan .*0 to 100",
    ),
    ("hello", {"sampling": Sampling(temperature=-1.0)}, r"sampling\.temperature: -1.0 .*0 to 100"),
    (
        "hello",
        {"sampling": Sampling(temperature=math.inf)},
        r"sampling\.temperature: inf .*0 to 100",
    ),
    (
        "hello",
        {"sampling": Sampling(frequency_penalty=2.5)},
        r"sampling\.frequency_penalty: 2.5 .*-2 to 2",
    ),
    (
        "hello",
        {"sampling": Sampling(presence_penalty=math.nan)},
        r"sampling\.presence_penalty: nan .*-2 to 2",
    ),
    (
        "hello",
        {"sampling": Sampling(repetition_penalty=0.0)},
        r"sampling\.repetition_penalty: 0.0 .*above 0",
    ),
    (
        "hello",
        {"sampling": Sampling(logit_bias={260: 1.0})},
        r"sampling\.logit_bias: 260 .*0 to 259",
    ),
    (
        "hello",
        {"sampling": Sampling(logit_bias={3: -101.0})},
        r"sampling\.logit_bias\[3\]: -101.0 .*-100 to 100",
    ),
    ("hello", {"sampling": Sampling(min_p=-1.0)}, r"sampling\.min_p: -1.0 .*\[0, 1\]"),
    ("hello", {"sampling": Sampling(min_p=math.nan)}, r"sampling\.min_p: nan .*\[0, 1\]"),
    ("hello", {"logprobs": 21}, r"logprobs: 21 .*0 to 20"),
    ("hello", {"stream_interval_ms": 1001}, r"stream_interval_ms: 1001 .*0 to 1000"),
    ("hello", {"stop": [""]}, r"stop\[0\]: '' .*1 to 1024"),
    ("hello", {"stop": ["end", "x" * 2000]}, r"stop\[1\]: 'x+' .*1 to 1024"),
    ("hello", {"stop": ["end"] * 17}, r"stop: '17 strings' .*at most 16"),
]


@pytest.mark.parametrize(("prompt", "options", "says"), REFUSED)
def test_nonsense_is_refused_with_field_and_limit(
    target: Worker, prompt: Any, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says):
        target.client.complete(prompt, **options)


@pytest.mark.parametrize("name", ["gpt", "x" * 100_000])
def test_an_unknown_model_is_refused_with_what_is_served(target: Worker, name: str) -> None:
    says = rf"model: '{name[:64]}' is not served here; allowed: 'tiny', or empty"
    for call in (target.client.complete, target.client.tokenize):
        with pytest.raises(InvalidRequest, match=says):
            call("hello", model=name)


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (b"", "prompt: .*text, chat and tokens"),
        (inference_pb2.GenerateRequest(chat=inference_pb2.Chat()).SerializeToString(), "chat.mess"),
        (b"\x12\x02\xc3\x28", "request: .*UTF-8"),  # text that is no UTF-8
        (b"\xff\xff\xff\xff", "request: .*no message"),
        (b"\x12\xff\xff\xff\x0f\x41", "request: .*no message"),  # text that ends too early
    ],
)
def test_bytes_that_are_no_request_are_refused(target: Worker, payload: bytes, says: str) -> None:
    error = raw_call(target, GENERATE, payload)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, error
    assert re.search(says, error.details() or "")


def test_a_message_above_the_limit_is_refused_by_size(target: Worker) -> None:
    request = inference_pb2.GenerateRequest(text="x" * MAX_MESSAGE_BYTES)
    error = raw_call(target, GENERATE, request.SerializeToString())
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(MAX_MESSAGE_BYTES) in (error.details() or "")


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_rows", 65), ("depth", 0), ("width", 2**31), ("nodes_ahead", 513)],
)
def test_a_policy_out_of_its_limits_changes_nothing(target: Worker, field: str, value: int) -> None:
    before = target.client.state().policy
    fields = {"version": before.version + 1, field: value}
    with pytest.raises(InvalidRequest, match=rf"policy\.{field}: {value} .*it must be 1 to"):
        target.client.set_policy(PolicySettings(**fields))  # type: ignore[arg-type]
    assert target.client.state().policy == before


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (2**64 - 1, "it must be 0 to"),
        (2**53 - 1, "it must be at most"),
        (0, "is superseded; the newest"),
    ],
)
def test_no_version_locks_a_target(target: Worker, version: int, words: str) -> None:
    before = target.client.state().policy
    target.client.set_policy(dataclasses.replace(before, version=before.version + 1))
    with pytest.raises(ClientError, match=rf"policy\.version: {version} .*{words}"):
        target.client.set_policy(dataclasses.replace(before, version=version))
    newer = dataclasses.replace(before, version=before.version + 2)
    assert target.client.set_policy(newer).policy == newer


def test_after_all_refusals_the_target_still_answers(
    target: Worker, plain: tuple[int, ...]
) -> None:
    for prompt, options, _ in REFUSED:
        with pytest.raises(InvalidRequest):
            target.client.complete(prompt, **options)
    assert answer(target, 40).tokens == plain[:40]


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ("x" * 10_000_000, r"text: '10000000 bytes' .*at most 26624 bytes"),
        ([Message("user", "x" * 10_000_000)], r"chat\.messages: '10000004 bytes' .*at most 26624"),
        ([Message("user", "")] * 500_000, r"request: '4000008 bytes' .*32768 fields"),
        ([Message("user", "")] * 10_000, r"chat\.messages: '10000 messages' .*at most 2048"),
        ([Message("x" * 26_000, "")], r"chat\.messages\[0\]\.role: 'x{32}' .*user"),
        ([7] * 3_000_000, r"prompt: '3000000 tokens' .*1 to 2047"),
    ],
    ids=["text", "one message", "fields", "messages", "role", "tokens"],
)
def test_a_huge_prompt_is_refused_while_others_are_answered(
    target: Worker, prompt: Any, says: str
) -> None:
    refused_beside_others(target, prompt, says)


def test_a_long_prompt_is_tokenized_while_others_are_answered(folders: Folders) -> None:
    model = folders.logs / "wide"
    write_tiny(
        model, layers=1, hidden=16, heads=1, kv_heads=1, max_position_embeddings=WIDE_CONTEXT
    )
    settings = settings_for(Role.TARGET, model, folders.cache, max_context=WIDE_CONTEXT)
    with started(settings, folders.logs) as worker:
        text = "x" * (WIDE_CONTEXT * len("<|assistant|>"))  # the most that is not refused unread
        answers = refused_beside_others(worker, text, rf"prompt: '{len(text)} tokens'")
        assert answers > 20  # 771; tokenized on the server's loop: 1


def test_as_many_requests_as_run_and_wait_are_open_and_no_more(folders: Folders) -> None:
    settings = folders.settings(Role.TARGET, max_running=2, max_waiting=1)
    with started(settings, folders.logs) as worker, contextlib.ExitStack() as streams:
        for _ in range(3):
            stream = worker.client.generate("hello", max_tokens=2000, ignore_end=True)
            streams.enter_context(stream)
        worker.until(lambda state: (state.running, state.waiting) == (2, 1))
        with pytest.raises(Overloaded, match="3 requests are open, the limit") as refusal:
            worker.client.complete("hello", max_tokens=1)
        assert refusal.value.retry_after == 1  # nothing has ended yet, so that nothing is known
        streams.close()
        worker.until(lambda state: state.running + state.waiting == 0)
        assert worker.client.complete("hello", max_tokens=1, ignore_end=True).token_ids


@pytest.fixture(scope="module")
def least(folders: Folders) -> Iterator[Worker]:
    """A target with the least context, and memory of its own size."""
    settings = folders.settings(
        Role.TARGET, max_context=MIN_CONTEXT, max_running=3, kv_bytes=MEMORY, prefix_cache=False
    )
    with started(settings, folders.logs) as worker:
        yield worker


def test_the_least_context_is_enough_to_start_and_answer(least: Worker) -> None:
    result = least.client.complete("hello", max_tokens=MIN_CONTEXT - 5, ignore_end=True)
    assert len(result.token_ids) == MIN_CONTEXT - 5


def test_a_worker_tells_what_its_engine_settings_came_to(least: Worker) -> None:
    state = least.until(lambda state: state.counters.kv_slots > 0)
    assert state.engine is not None
    assert state.engine == EngineState(
        max_context=MIN_CONTEXT,
        dtype="fp32",
        threads=1,
        max_running=3,
        kv_bytes=state.engine.kv_bytes,
        prefix_cache=False,
    )
    assert MEMORY / 2 < state.engine.kv_bytes <= MEMORY
    assert state.counters.kv_slots % 64 == 0


def test_kv_memory_that_holds_no_sequence_is_refused_by_name(folders: Folders) -> None:
    settings = folders.settings(Role.TARGET, kv_bytes=1000)
    worker = launch(settings, folders.logs)
    assert worker.process.wait(60) != 0
    assert "settings.kv_bytes: 1000 is not allowed; one sequence" in worker.tail()


def refused_beside_others(worker: Worker, prompt: Any, says: str) -> int:
    """Has a prompt refused; returns how often GetState answered meanwhile, each time at once."""
    answers = 0
    with ThreadPoolExecutor(1) as thread:
        refusal = thread.submit(worker.client.complete, prompt)
        while not refusal.done():
            worker.client.state(timeout=STALL_SECONDS)
            answers += 1
    with pytest.raises(InvalidRequest, match=says):
        refusal.result()
    return answers


def raw_call(target: Worker, method: str, payload: bytes) -> Any:
    """What a call of bytes as they are is refused with."""
    with grpc.insecure_channel(target.address) as channel:
        generate: Any = channel.unary_stream(method)
        call: Any = generate(payload, timeout=30)
        with pytest.raises(grpc.RpcError):
            list(call)
        return call
