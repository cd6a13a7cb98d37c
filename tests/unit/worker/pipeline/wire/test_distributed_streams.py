"""Streams whose records torch.distributed carries: the rules of those by gRPC, and their own."""

import grpc
import pytest

from outrider.protos.v1.internal import drafter_pb2
from outrider.protos.v1.internal import stage_pb2 as pb
from outrider.worker.errors import StageRefused
from outrider.worker.link.distributed import open_rendezvous
from outrider.worker.pipeline.wire import hello
from outrider.worker.pipeline.wire.stage_client import StageClient
from tests.unit.worker.pipeline.wire import test_streams
from tests.unit.worker.pipeline.wire.pipeline_records import LIMITS, begin, segment
from tests.unit.worker.pipeline.wire.stage_servers import group, shared_loop, stage_servers
from tests.unit.worker.pipeline.wire.test_streams import RawPeer, collected, leading


@pytest.fixture
def distributed() -> bool:
    return True


test_records_pass_all_stages = (
    test_streams.test_records_pass_all_stages_in_order_and_results_come_back
)
test_a_group_ends_with_its_leader = (
    test_streams.test_a_group_ends_everywhere_with_its_leader_and_another_begins
)
test_a_stage_that_is_gone = test_streams.test_a_stage_that_is_gone_ends_the_group_everywhere
test_what_is_left_unread = test_streams.test_what_is_left_unread_ends_the_group
test_a_malformed_record = test_streams.test_a_malformed_record_ends_the_group_and_no_process
test_results_out_of_range = test_streams.test_results_out_of_range_end_the_group


def test_both_sides_have_to_name_what_carries_their_records() -> None:
    with stage_servers(1, distributed=True) as stages:
        client = StageClient(group(1), shared_loop(), LIMITS.vocabulary)
        with pytest.raises(StageRefused, match="stage 0 of 1: its link is distributed, not grpc"):
            client.connect(stages[0].address, stages[0].address)
    with stage_servers(1) as stages:
        client = StageClient(group(1, distributed=True), shared_loop(), LIMITS.vocabulary)
        with pytest.raises(StageRefused, match="stage 0 of 1: its link is grpc, not distributed"):
            client.connect(stages[0].address, stages[0].address)


def test_a_leader_that_never_joins_ends_its_group_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names a port of nothing; the group ends with the reason, the stage takes the next one."""
    nowhere = drafter_pb2.Rendezvous(host="127.0.0.1", port=0, prefix="x")
    with stage_servers(1, distributed=True) as stages:
        with RawPeer(stages[0].address) as leader:
            leader.send(hello.hello_to(group(1, distributed=True), 0, 0, nowhere))
            code, details = leader.refusal()
        assert code is grpc.StatusCode.UNAVAILABLE
        assert details == (
            "stage 0: the leader: the store at 127.0.0.1:0 cannot be joined: there is no such port"
        )
        with leading(stages, group(1, number=2, distributed=True)) as client:
            client.send(begin())
            client.send(segment())
            assert len(collected(client, 1)) == 1


def test_a_payload_that_is_too_large_ends_the_group() -> None:
    with stage_servers(1, distributed=True) as stages, RawPeer(stages[0].address) as leader:
        place = open_rendezvous(stages[0].address)
        leader.send(hello.hello_to(group(1, distributed=True), 0, 0, place.offer()))
        next(leader.incoming)
        leader.send(pb.StageMessage(announced=1 << 27).SerializeToString())
        _, details = leader.refusal()
        assert f"the leader: a message of {1 << 27} bytes; {1 << 26} are allowed" in details
