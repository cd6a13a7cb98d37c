"""Streams between a leader and stages: order, liveness, and peers that break the rules."""

import asyncio
import contextlib
import gc
import os
import queue
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import Mock

import grpc
import numpy as np
import pytest

from outrider.contract.settings import StageDtype
from outrider.protos.v1.internal import stage_pb2 as pb
from outrider.worker.errors import StageLost, StageRefused
from outrider.worker.model.layer_range import LayerRange
from outrider.worker.pipeline.records import End, Results
from outrider.worker.pipeline.wire import hello, mailbox
from outrider.worker.pipeline.wire.codec import Codec
from outrider.worker.pipeline.wire.hello import Group, StageFacts, StageIdentity
from outrider.worker.pipeline.wire.limits import RecordLimits, ResultLimits
from outrider.worker.pipeline.wire.outgoing_stream import OutgoingStream
from outrider.worker.pipeline.wire.stage_client import StageClient
from tests.unit.worker.pipeline.wire.pipeline_records import (
    HIDDEN,
    LIMITS,
    assert_same,
    begin,
    move,
    segment,
)
from tests.unit.worker.pipeline.wire.stage_servers import (
    REVISION,
    StageServer,
    echo,
    group,
    shared_loop,
    stage_servers,
)

CODEC = Codec(StageDtype.FP32, HIDDEN)
SECONDS = 60.0
"""Far more than anything here takes."""
SOON = 400
"""Milliseconds of silence in tests where it is to be noticed."""


@pytest.fixture
def distributed() -> bool:
    """Whether torch.distributed carries records and results, rather than gRPC."""
    return False


@contextlib.contextmanager
def leading(stages: list[StageServer], of: Group | None = None) -> Iterator[StageClient]:
    of = of or group(len(stages), distributed=stages[0].own.distributed)
    client = StageClient(of, shared_loop(), LIMITS.vocabulary)
    try:
        client.connect(stages[0].address, stages[-1].address)
        yield client
    finally:
        client.close()


def collected(client: StageClient, count: int) -> list[Results]:
    results: list[Results] = []
    while len(results) < count:
        got = client.receive(SECONDS)
        assert got, "nothing came"
        results += got
    return results


def wait_for_end(client: StageClient) -> None:
    """Waits without taking anything."""
    late = time.monotonic() + SECONDS
    while client.closed is None and time.monotonic() < late:
        time.sleep(0.01)


def end_of(client: StageClient) -> str:
    """Why the group ends."""
    with contextlib.suppress(StageLost):
        while client.receive(SECONDS):
            pass
    assert client.closed is not None, f"the group lives after {SECONDS} s"
    return client.closed


@pytest.mark.parametrize("count", [1, 2, 3])
def test_records_pass_all_stages_in_order_and_results_come_back(
    count: int, distributed: bool
) -> None:
    records: list[Any] = [begin()]
    records += [segment(n, first=3 * n) for n in range(20)]
    records += [move(freed=np.array([70], np.int32)), End(1), segment(20, count=0)]
    with stage_servers(count, distributed) as stages, leading(stages) as client:
        assert [f.stage for f in client.facts] == list(range(count))
        for record in records:
            client.send(record)
        for got, sent in zip(collected(client, 21), [*records[1:21], records[-1]], strict=True):
            assert_same(got, echo(sent))
        assert [type(r) for r in stages[-1].received] == [type(r) for r in records]
        assert client.sent_bytes > 20 * 100
        assert client.received_bytes > 20 * 20


def test_no_proxy_is_between_a_leader_and_its_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # nobody listens there
    monkeypatch.delenv("no_proxy", raising=False)
    with stage_servers(2) as stages, leading(stages) as client:
        client.send(begin())
        client.send(segment(9))
        assert collected(client, 1)[0].segment == 9


def test_a_group_ends_everywhere_with_its_leader_and_another_begins(distributed: bool) -> None:
    with stage_servers(3, distributed) as stages:
        with leading(stages) as client:
            client.send(begin())
            client.send(segment())
            collected(client, 1)
        for stage in stages:
            assert stage.ended.get(timeout=SECONDS)
        with leading(stages, group(3, number=2, distributed=distributed)) as client:
            client.send(begin(2))
            client.send(segment(9))
            assert collected(client, 1)[0].segment == 9


def test_nothing_is_sent_to_a_group_that_has_ended() -> None:
    with stage_servers(1) as stages, leading(stages) as client:
        client.close("enough")
        client.send(begin())
        assert end_of(client) == "enough"
        assert stages[0].ended.get(timeout=SECONDS)
        assert stages[0].received == []


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_stage_that_is_gone_ends_the_group_everywhere(victim: int, distributed: bool) -> None:
    with stage_servers(3, distributed) as stages, leading(stages) as client:
        client.send(begin())
        stages[victim].close()
        assert end_of(client)
        for stage in stages[:victim] + stages[victim + 1 :]:
            assert stage.ended.get(timeout=SECONDS)


def test_a_silent_leader_is_given_up_by_all() -> None:
    with stage_servers(2) as stages, RawPeer(stages[0].address) as leader:
        leader.send(hello.hello_to(group(2, silence=SOON), 0, 0))
        code, details = leader.refusal()
        assert code is grpc.StatusCode.UNAVAILABLE
        assert details == "stage 0: the leader was silent for 0.4 s"
        for stage in stages:
            assert stage.ended.get(timeout=SECONDS)


def test_a_silent_leader_of_results_is_given_up_by_all() -> None:
    with stage_servers(1) as stages, RawPeer(stages[0].address) as leader:
        leader.send(hello.hello_to(group(1, silence=SOON), 0, 0))
        next(leader.incoming)
        with RawPeer(stages[0].address, "Collect") as collector:
            collector.send(hello.hello_to(group(1, silence=SOON), 0, 0))
            leader.live(SOON)
            _, details = collector.refusal()
        assert details == "stage 0: the leader was silent for 0.4 s"


def test_a_silent_stage_is_given_up_by_all() -> None:
    """The last one says Hello, and nothing more."""
    with RawStage() as last, stage_servers(2) as stages:
        stages[0].send_to(last.address)
        client = StageClient(group(2, silence=SOON), shared_loop(), LIMITS.vocabulary)
        client.connect(stages[0].address, last.address)
        assert "was silent for 0.4 s" in end_of(client)
        assert "was silent for 0.4 s" in stages[0].ended.get(timeout=SECONDS)


def test_a_leader_lives_while_it_waits_for_the_stream_of_results() -> None:
    with stage_servers(1) as stages, LateStage() as late:
        client = StageClient(group(1, silence=SOON), shared_loop(), LIMITS.vocabulary)
        client.connect(stages[0].address, late.address)
        assert late.waited
        assert stages[0].ended.empty()
        client.close()


def test_what_is_left_unread_ends_the_group(
    monkeypatch: pytest.MonkeyPatch, distributed: bool
) -> None:
    monkeypatch.setattr(mailbox, "UNREAD_MESSAGES", 2)
    with stage_servers(1, distributed) as stages, leading(stages) as client:
        client.send(begin())
        for number in range(3):
            client.send(segment(number, first=3 * number))
        wait_for_end(client)
        assert "messages are unread: too many" in end_of(client)


def test_an_error_of_a_stage_s_streams_ends_the_group_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with stage_servers(2) as stages, leading(stages) as client:
        monkeypatch.setattr(RecordLimits, "check", Mock(side_effect=MemoryError("all is full")))
        client.send(begin())
        assert end_of(client) == "stage 0: it failed: MemoryError: all is full"


def test_an_error_of_a_leader_s_streams_ends_the_group_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with stage_servers(2) as stages, leading(stages) as client:
        monkeypatch.setattr(ResultLimits, "check", Mock(side_effect=MemoryError("all is full")))
        client.send(begin())
        client.send(segment())
        assert end_of(client) == "the leader failed: MemoryError: all is full"


def test_a_quiet_group_lives_on_signs_of_life() -> None:
    with stage_servers(2) as stages, leading(stages, group(2, silence=SOON)) as client:
        assert client.receive(3 * SOON / 1000) == []
        client.send(begin())
        client.send(segment())
        assert len(collected(client, 1)) == 1


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (segment(tokens=np.array([1, 2, 4000], np.int32)), r"segment\.tokens: 4000 is not allowed"),
        (segment(count=17), "segment: 17 rows; 16 are allowed"),
        (segment(hidden=np.ones((3, 6), np.float32)), r"segment\.hidden: "),
        (move(freed=np.array([-1], np.int32)), r"move\.freed: -1 is not allowed"),
    ],
)
def test_a_malformed_record_ends_the_group_and_no_process(
    record: Any, reason: str, distributed: bool
) -> None:
    with stage_servers(2, distributed) as stages:
        with leading(stages) as client:
            client.send(begin())
            client.send(record)
            ended = end_of(client)
            assert ended.startswith("stage 0: a message breaks the rules: ")
            assert re.search(reason, ended)
        for stage in stages:
            assert stage.ended.get(timeout=SECONDS)
        with leading(stages, group(2, number=2, distributed=distributed)) as client:
            client.send(begin())
            client.send(segment())
            assert len(collected(client, 1)) == 1


@pytest.mark.parametrize("token", [-3, LIMITS.vocabulary])
def test_results_out_of_range_end_the_group(token: int, distributed: bool) -> None:
    with stage_servers(2, distributed) as stages, leading(stages) as client:
        stages[-1].answers = token
        client.send(begin())
        client.send(segment())
        assert f"a message breaks the rules: results.tokens: {token} is not" in end_of(client)
        for stage in stages:
            assert stage.ended.get(timeout=SECONDS)


def test_leader_and_stages_of_different_models_name_both() -> None:
    with stage_servers(2) as stages:
        client = StageClient(group(2, revision="abd"), shared_loop(), LIMITS.vocabulary)
        with pytest.raises(StageRefused, match="stage 0 of 2: its model is abc, not abd"):
            client.connect(stages[0].address, stages[1].address)
        assert client.closed is not None


def test_a_stage_that_is_not_there_is_named() -> None:
    with stage_servers(2) as stages:
        stages[1].close()
        with pytest.raises(StageLost, match=f"stage 1 at {stages[1].address}: UNAVAILABLE"):
            StageClient(group(2), shared_loop(), LIMITS.vocabulary).connect(
                stages[0].address, stages[1].address
            )


@pytest.mark.parametrize("gone", [False, True])
def test_groups_that_cannot_begin_keep_no_connection(gone: bool) -> None:
    """None until a collection of garbage either: a quiet worker may not see one for hours."""
    with stage_servers(2) as stages, no_collection():
        if gone:
            stages[1].close()
        wants = group(2) if gone else group(2, revision="abd")
        before = open_sockets()
        for _ in range(20):
            with pytest.raises((StageLost, StageRefused)):
                StageClient(wants, shared_loop(), LIMITS.vocabulary).connect(
                    stages[0].address, stages[1].address
                )
        late = time.monotonic() + SECONDS
        while open_sockets() > before + 4 and time.monotonic() < late:
            time.sleep(0.01)
        assert open_sockets() <= before + 4  # both ends of those that still close


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def open_sockets() -> int:
    found = 0
    for entry in os.scandir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the folder itself
            found += os.readlink(entry.path).startswith("socket:")
    return found


@pytest.mark.parametrize("error", [ValueError("odd"), asyncio.CancelledError("odd")])
def test_a_leader_that_fails_while_it_begins_loses_its_group(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr(OutgoingStream, "open", Mock(side_effect=error))
    client = StageClient(group(1), shared_loop(), LIMITS.vocabulary)
    reason = f"the leader failed: {type(error).__name__}: odd"
    with pytest.raises(StageLost, match=reason):
        client.connect("127.0.0.1:1", "127.0.0.1:1")
    assert client.closed == reason


def test_streams_that_fail_as_they_end_hold_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    end = OutgoingStream.end

    async def fail(stream: OutgoingStream) -> None:
        await end(stream)
        raise ValueError("odd")

    with stage_servers(1) as stages:
        monkeypatch.setattr(OutgoingStream, "end", fail)
        client = StageClient(group(1), shared_loop(), LIMITS.vocabulary)
        client.connect(stages[0].address, stages[0].address)
        client.close()
        assert client.ended
        monkeypatch.undo()
        with leading(stages, group(1, number=2)) as following:
            following.send(begin())


def test_a_second_leader_is_refused_while_the_first_one_lives() -> None:
    with stage_servers(2) as stages, leading(stages) as client:
        second = StageClient(group(2, number=2), shared_loop(), LIMITS.vocabulary)
        with pytest.raises(StageLost, match="stage 0 of 2 takes part in another group"):
            second.connect(stages[0].address, stages[1].address)
        client.send(begin())
        client.send(segment())
        assert len(collected(client, 1)) == 1


class RawPeer:
    """A stream of whatever bytes to a stage."""

    def __init__(self, address: str, method: str = "Run") -> None:
        self._channel = grpc.insecure_channel(address)
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        stream: Any = self._channel.stream_stream(f"/outrider.protos.v1.Stage/{method}")
        self.incoming = stream(iter(self._outgoing.get, None), timeout=SECONDS)

    def send(self, payload: bytes) -> None:
        self._outgoing.put(payload)

    def live(self, silence: int) -> None:
        """Sends signs of life, on a thread, until the stream ends."""

        def beat() -> None:
            while self.incoming.is_active():
                self.send(b"")
                time.sleep(silence / 8000)

        threading.Thread(target=beat, daemon=True).start()

    def refusal(self) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(grpc.RpcError) as caught:
            for _ in self.incoming:
                pass
        return caught.value.code(), caught.value.details()

    def __enter__(self) -> "RawPeer":
        return self

    def __exit__(self, *_: object) -> None:
        self._outgoing.put(None)
        self.incoming.cancel()
        self._channel.close()


class RawStage:
    """The last of some stages: answers Hello, and is silent from then on."""

    def __init__(self, stages: int = 2) -> None:
        layers = LayerRange(stages - 1, stages, stages)
        facts = StageFacts(stages - 1, layers, "fp32", 8, 16, 200)
        self._own = StageIdentity(REVISION, stages, facts, 6, 300)
        self._gone = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(4))
        method: Any = grpc.stream_stream_rpc_method_handler(self._serve)
        methods = {"Run": method, "Collect": method}
        handler = grpc.method_handlers_generic_handler("outrider.protos.v1.Stage", methods)
        self._server.add_generic_rpc_handlers((handler,))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def _serve(self, incoming: Iterator[bytes], context: Any) -> Iterator[bytes]:
        yield hello.answer(self._own, hello.accept_hello(self._own, next(incoming)), ())
        self._gone.wait()

    def __enter__(self) -> "RawStage":
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._gone.set()
        self._server.stop(0).wait()


class LateStage(RawStage):
    """The only stage: answers Hello after a silence that nobody may keep."""

    def __init__(self) -> None:
        super().__init__(1)
        self.waited = False

    def _serve(self, incoming: Iterator[bytes], context: Any) -> Iterator[bytes]:
        self.waited = not self._gone.wait(3 * SOON / 1000)
        yield from super()._serve(incoming, context)


@pytest.mark.parametrize(
    ("first", "problem"),
    [
        (b"\xff\xff", "bytes that are no message"),
        (b"", "None came before Hello"),
        (pb.StageMessage(records=b"").SerializeToString(), "records came before Hello"),
        (hello.hello_to(group(3), 0, 0), "its number of stages is 1, not 3"),
    ],
)
@pytest.mark.parametrize("method", ["Run", "Collect"])
def test_what_is_no_hello_is_refused(first: bytes, problem: str, method: str) -> None:
    with stage_servers(1) as stages:
        with RawPeer(stages[0].address, method) as peer:
            peer.send(first)
            code, details = peer.refusal()
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert problem in details
        with leading(stages) as client:
            client.send(begin())


@pytest.mark.parametrize(
    "payload",
    [
        b"\xff\xff",
        CODEC.encode(echo(segment())),
        hello.hello_to(group(1), 0, 0),
        pb.StageMessage(records=b"\0" * 5).SerializeToString(),
    ],
)
def test_what_is_no_record_ends_the_group(payload: bytes) -> None:
    with stage_servers(1) as stages:
        with RawPeer(stages[0].address) as peer:
            peer.send(hello.hello_to(group(1), 0, 0))
            peer.send(payload)
            code, details = peer.refusal()
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "a message breaks the rules" in details
        assert stages[0].ended.get(timeout=SECONDS)
        with leading(stages) as client:
            client.send(begin())


def test_records_on_the_stream_of_results_end_the_group() -> None:
    with stage_servers(1) as stages, RawPeer(stages[0].address) as leader:
        leader.send(hello.hello_to(group(1), 0, 0))
        next(leader.incoming)
        with RawPeer(stages[0].address, "Collect") as collector:
            collector.send(hello.hello_to(group(1), 0, 0))
            collector.send(CODEC.encode(End(1)))
            code, details = collector.refusal()
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "bytes came against the stream of records" in details


def test_results_of_another_group_cannot_be_collected() -> None:
    with stage_servers(1) as stages, leading(stages):
        for number in (1, 5):
            with RawPeer(stages[0].address, "Collect") as peer:
                peer.send(hello.hello_to(group(1, number), 0, 0))
                code, details = peer.refusal()
            assert code is grpc.StatusCode.UNAVAILABLE
            assert "its group is not" in details
