"""A target whose stages talk through torch.distributed answers as one linked by gRPC."""

from collections.abc import Iterator

import pytest

from outrider.contract.settings import StageLink
from tests.process import test_pipelined_target as by_grpc
from tests.process.conftest import Folders
from tests.process.workers import Worker


@pytest.fixture(scope="module")
def pipelined(folders: Folders) -> Iterator[Worker]:
    with by_grpc.pipeline_of((1, 1, 48), StageLink.DISTRIBUTED, folders) as worker:
        yield worker


whole, alone = by_grpc.whole, by_grpc.alone
test_its_text = by_grpc.test_a_draft_on_off_or_refused_writes_the_text_of_one_piece
test_a_killed_draft = by_grpc.test_a_killed_draft_costs_no_token
test_several_requests = by_grpc.test_several_requests_at_once_are_answered_as_one_by_one
test_what_is_seen = by_grpc.test_its_stages_are_seen_in_state_metrics_top_and_on_a_timeline
test_logprobs = by_grpc.test_logprobs_are_those_of_one_piece
test_a_response_format = by_grpc.test_a_response_format_is_followed_to_the_end
