"""The client against a real gRPC server on loopback that answers from a script."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent import futures
from typing import Any

import grpc
import pytest

from outrider.client import (
    AsyncClient,
    Cancelled,
    Chunk,
    Client,
    ClientError,
    Counters,
    DeadlineExceeded,
    FinishReason,
    Incomplete,
    InvalidRequest,
    Link,
    LinkState,
    Message,
    Model,
    Overloaded,
    PolicySettings,
    Result,
    Sampling,
    ServerError,
    Unavailable,
)
from outrider.contract.settings import Role
from outrider.protos.v1 import inference_pb2, inference_pb2_grpc
from outrider.protos.v1.internal import control_pb2, control_pb2_grpc

PIECES = [("Hel", [5, 6]), ("lo", [7]), ("", [2])]
USAGE = {
    "prompt_tokens": 3,
    "completion_tokens": 4,
    "passes": 2,
    "draft_rows": 8,
    "accepted_rows": 2,
    "passes_with_nodes": 1,
    "first_guesses": 2,
    "first_hits": 1,
}
TIMING = {
    "queued_seconds": 0.25,
    "first_token_seconds": 0.5,
    "total_seconds": 2.0,
    "decode_seconds": 1.5,
    "plain_seconds": 3.0,
    "draft_wait_seconds": 0.125,
}


class Script(inference_pb2_grpc.InferenceServicer, control_pb2_grpc.ControlServicer):
    """Remembers what it was asked. A text that names a gRPC status is refused with it; the text
    `endless` is answered until the client goes away; any other prompt gets PIECES."""

    def __init__(self) -> None:
        self.asked: Any = None
        self.left = threading.Event()

    def Generate(
        self, request: inference_pb2.GenerateRequest, context: Any
    ) -> Iterator[inference_pb2.GenerateResponse]:
        self.asked = request
        if request.text in grpc.StatusCode.__members__:
            context.abort(grpc.StatusCode[request.text], f"max_tokens: limit of {request.text}")
        if request.text == "endless":
            context.add_callback(self.left.set)
            yield inference_pb2.GenerateResponse(text="x", token_ids=[1], passes=1)
            self.left.wait(30)
            return
        for text, ids in PIECES[:-1]:
            yield inference_pb2.GenerateResponse(text=text, token_ids=ids, passes=1)
        if request.text == "cut":
            return
        text, ids = PIECES[-1]
        yield inference_pb2.GenerateResponse(
            text=text,
            token_ids=ids,
            passes=1,
            finish_reason=inference_pb2.FINISH_REASON_LENGTH,
            usage=inference_pb2.Usage(**USAGE),
            timing=inference_pb2.Timing(**TIMING),
            seed=2**64 - 1,
        )

    def Tokenize(
        self, request: inference_pb2.TokenizeRequest, context: Any
    ) -> inference_pb2.TokenizeResponse:
        self.asked = request
        return inference_pb2.TokenizeResponse(ids=[1, 2, 3])

    def ListModels(
        self, request: inference_pb2.ListModelsRequest, context: Any
    ) -> inference_pb2.ListModelsResponse:
        model = inference_pb2.Model(
            name="m", context_length=2048, vocabulary_size=9, default_sampling={"top_k": 20}
        )
        return inference_pb2.ListModelsResponse(models=[model])

    def SetPolicy(self, request: control_pb2.SetPolicyRequest, context: Any) -> control_pb2.State:
        self.asked = request
        return state(policy=request.policy)

    def GetState(self, request: control_pb2.GetStateRequest, context: Any) -> control_pb2.State:
        return state()

    def Drain(self, request: control_pb2.DrainRequest, context: Any) -> control_pb2.DrainResponse:
        self.asked = request
        return control_pb2.DrainResponse(running=2)


def state(**changes: Any) -> control_pb2.State:
    refused = control_pb2.Link(
        address="d:1", state=control_pb2.LINK_STATE_REFUSED, detail="why", incarnation=9
    )
    return control_pb2.State(
        role="target",
        links=[refused],
        counters=control_pb2.Counters(tokens=12, spent_seconds=1.5),
        step_seconds={2: 0.25},
        engine=control_pb2.Engine(dtype="int8", path_seconds={"bf16": 0.5, "int8": 0.25}),
        **changes,
    )


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def address(script: Script) -> Iterator[str]:
    with futures.ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool)
        inference_pb2_grpc.add_InferenceServicer_to_server(script, server)
        control_pb2_grpc.add_ControlServicer_to_server(script, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"127.0.0.1:{port}"
        server.stop(None).wait()


Answer = tuple[list[Chunk], Result]


def ask_sync(address: str, prompt: Any, **options: Any) -> Answer:
    with Client(address) as client, client.generate(prompt, **options) as stream:
        return list(stream), stream.result


def ask_async(address: str, prompt: Any, **options: Any) -> Answer:
    async def ask() -> Answer:
        async with AsyncClient(address) as client, client.generate(prompt, **options) as stream:
            return [chunk async for chunk in stream], stream.result

    return asyncio.run(ask())


@pytest.fixture(params=[ask_sync, ask_async], ids=["sync", "async"])
def ask(request: pytest.FixtureRequest, address: str) -> Callable[..., Answer]:
    def at_address(prompt: Any, **options: Any) -> Answer:
        answer: Answer = request.param(address, prompt, **options)
        return answer

    return at_address


def test_a_stream_yields_every_chunk_and_then_its_result(ask: Callable[..., Answer]) -> None:
    chunks, result = ask("hi")
    assert chunks == [Chunk(text, tuple(ids)) for text, ids in PIECES]
    assert (result.text, result.token_ids) == ("Hello", (5, 6, 7, 2))
    assert (result.finish_reason, result.seed) == (FinishReason.LENGTH, 2**64 - 1)
    assert {name: getattr(result.usage, name) for name in USAGE} == USAGE
    assert {name: getattr(result.timing, name) for name in TIMING} == TIMING


def test_every_option_reaches_the_server(ask: Callable[..., Answer], script: Script) -> None:
    ask(
        "hi",
        model="m",
        sampling=Sampling(temperature=0.5, top_k=4, top_p=0.75, min_p=0.25, seed=2**64 - 1),
        max_tokens=7,
        stop=["a", "b"],
        speculate=False,
        ignore_end=True,
    )
    assert script.asked == inference_pb2.GenerateRequest(
        model="m",
        text="hi",
        sampling=inference_pb2.Sampling(
            temperature=0.5, top_k=4, top_p=0.75, min_p=0.25, seed=2**64 - 1
        ),
        max_tokens=7,
        stop=["a", "b"],
        speculate=False,
        ignore_end=True,
    )


def test_what_is_left_out_is_left_to_the_server(ask: Callable[..., Answer], script: Script) -> None:
    ask("hi")
    assert script.asked == inference_pb2.GenerateRequest(model="", text="hi")
    assert not script.asked.HasField("max_tokens")
    assert not script.asked.HasField("speculate")


def test_zero_is_not_the_same_as_left_out(ask: Callable[..., Answer], script: Script) -> None:
    ask("hi", sampling=Sampling(temperature=0.0, seed=0), max_tokens=0)
    assert script.asked.sampling.HasField("seed")
    assert not script.asked.sampling.HasField("top_p")
    assert script.asked.HasField("max_tokens")


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("hi", {"text": "hi"}),
        ("", {"text": ""}),
        ([1, 2], {"tokens": {"ids": [1, 2]}}),
        ([], {"tokens": {}}),
        (
            [Message("user", "hi"), Message("assistant", "ho", reasoning_content="hm")],
            {
                "chat": {
                    "messages": [
                        {"role": "user", "content": "hi"},
                        {"role": "assistant", "content": "ho", "reasoning_content": "hm"},
                    ]
                }
            },
        ),
    ],
)
def test_a_prompt_has_three_forms(
    ask: Callable[..., Answer], script: Script, prompt: Any, expected: dict[str, Any]
) -> None:
    ask(prompt)
    assert script.asked == inference_pb2.GenerateRequest(**expected)
    assert script.asked.WhichOneof("prompt") == next(iter(expected))


@pytest.mark.parametrize(
    ("status", "error"),
    [
        ("INVALID_ARGUMENT", InvalidRequest),
        ("RESOURCE_EXHAUSTED", Overloaded),
        ("UNAVAILABLE", Unavailable),
        ("CANCELLED", Cancelled),
        ("DEADLINE_EXCEEDED", DeadlineExceeded),
        ("INTERNAL", ServerError),
        ("PERMISSION_DENIED", ClientError),
    ],
)
def test_a_refusal_keeps_the_servers_words(
    ask: Callable[..., Answer], status: str, error: type[ClientError]
) -> None:
    with pytest.raises(ClientError, match=f"^max_tokens: limit of {status}$") as caught:
        ask(status)
    assert type(caught.value) is error
    assert caught.value.status.name == status


@pytest.mark.parametrize(
    ("prompt", "options", "named"),
    [
        ([1, -1], {}, "ids: -1"),
        ([2**32], {}, "ids: 4294967296"),
        ("hi", {"max_tokens": -3}, "max_tokens: -3"),
        ("hi", {"sampling": Sampling(top_k=-1)}, "top_k: -1"),
        ("lone \ud800 surrogate", {}, "text: "),
        ("hi", {"stop": ["\ud800"]}, "stop: "),
    ],
)
def test_a_value_that_no_message_can_carry_is_refused_by_name(
    ask: Callable[..., Answer], prompt: Any, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidRequest, match=f"^{named}"):
        ask(prompt, **options)


def test_an_answer_without_its_last_message_has_no_result(ask: Callable[..., Answer]) -> None:
    with pytest.raises(Incomplete):
        ask("cut")


def test_a_deadline_ends_the_call_on_both_sides(ask: Callable[..., Answer], script: Script) -> None:
    with pytest.raises(DeadlineExceeded):
        ask("endless", timeout=0.2)
    assert script.left.wait(30)


@pytest.mark.parametrize("ask_at", [ask_sync, ask_async])
def test_nobody_at_the_address_is_unavailable(ask_at: Callable[..., Answer]) -> None:
    with pytest.raises(Unavailable):
        ask_at("127.0.0.1:1", "hi")


def test_a_closed_stream_cancels_its_call(address: str, script: Script) -> None:
    with Client(address) as client:
        stream = client.generate("endless")
        assert next(iter(stream)) == Chunk("x", (1,))
        stream.close()
        assert script.left.wait(30)
        with pytest.raises(Cancelled):
            next(iter(stream))
        with pytest.raises(Incomplete):
            _ = stream.result


def test_leaving_the_block_early_cancels_the_call(address: str, script: Script) -> None:
    with Client(address) as client:
        with client.generate("endless") as stream:
            next(iter(stream))
        assert script.left.wait(30)


def test_a_closed_async_stream_cancels_its_call(address: str, script: Script) -> None:
    async def leave() -> None:
        async with AsyncClient(address) as client:
            stream = client.generate("endless")
            assert await anext(stream) == Chunk("x", (1,))
            stream.close()
            with pytest.raises(Cancelled):
                await anext(stream)

    asyncio.run(leave())
    assert script.left.wait(30)


def test_cancelling_the_reading_task_cancels_the_call(address: str, script: Script) -> None:
    async def read(chunks: AsyncIterator[Chunk], started: asyncio.Event) -> None:
        async for _ in chunks:
            started.set()

    async def cancel() -> None:
        async with AsyncClient(address) as client:
            started = asyncio.Event()
            task = asyncio.create_task(read(client.generate("endless"), started))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(cancel())
    assert script.left.wait(30)


def both(address: str, method: str, *values: Any, **options: Any) -> Sequence[Any]:
    """What the method returns of the sync and of the async client."""

    async def call() -> Any:
        async with AsyncClient(address, timeout=30) as client:
            return await getattr(client, method)(*values, **options)

    with Client(address, timeout=30) as client:
        return [getattr(client, method)(*values, **options), asyncio.run(call())]


def test_complete_is_the_streams_result(address: str) -> None:
    results = both(address, "complete", "hi", max_tokens=4)
    assert [r.token_ids for r in results] == [(5, 6, 7, 2)] * 2


def test_tokenize_asks_with_the_chat(address: str, script: Script) -> None:
    for chat in ("hi", [Message("user", "hi")]):
        assert both(address, "tokenize", chat, model="m") == [(1, 2, 3)] * 2
    chat_message = inference_pb2.ChatMessage(role="user", content="hi")
    assert script.asked == inference_pb2.TokenizeRequest(
        model="m", chat=inference_pb2.Chat(messages=[chat_message])
    )


def test_models_are_listed(address: str) -> None:
    expected = Model(
        name="m",
        context_length=2048,
        vocabulary_size=9,
        revision="",
        has_chat_template=False,
        default_sampling={"top_k": 20.0},
    )
    assert both(address, "models") == [(expected,)] * 2


def test_the_state_is_read_whole(address: str) -> None:
    for read in both(address, "state"):
        assert read.role is Role.TARGET
        assert read.links == (
            Link(address="d:1", state=LinkState.REFUSED, detail="why", revision="", incarnation=9),
        )
        assert read.counters == Counters(tokens=12, spent_seconds=1.5)
        assert read.step_seconds == {2: 0.25}
        assert read.engine is not None
        assert read.engine.path_seconds == {"bf16": 0.5, "int8": 0.25}


def test_a_policy_arrives_and_comes_back_equal(address: str) -> None:
    policy = PolicySettings(
        version=3, speculate=False, max_rows=1, depth=2, width=4, nodes_ahead=0, drafts=("a:1",)
    )
    assert [s.policy for s in both(address, "set_policy", policy)] == [policy] * 2


def test_drain_says_what_still_runs(address: str, script: Script) -> None:
    assert both(address, "drain", 2.5) == [2, 2]
    assert script.asked.grace_seconds == 2.5
