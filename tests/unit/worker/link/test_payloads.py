"""Payloads of the stream hold the same messages, as records."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from outrider.protos.v1.internal import drafter_pb2 as pb
from outrider.worker.errors import ProtocolViolation
from outrider.worker.link import payloads
from outrider.worker.link.draft_records import FROM_TARGET
from outrider.worker.link.records import RecordWriter
from outrider.worker.link.wire import Close, CloseReason, Commit, Limits, Open
from outrider.worker.sampling.params import SamplingParams
from tests.unit.worker.link.test_records import of_draft, of_target
from tests.unit.worker.link.test_wire import grow, plain

LIMITS = Limits(1, 8, 4, 32, 1.0)


def commit(session: int) -> Commit:
    return Commit(session, 9, np.array([3, 4], np.int32))


@given(of_target)
def test_a_target_s_messages_survive_their_payloads(messages: list[Any]) -> None:
    found = [m for p in payloads.for_draft(messages) for m in payloads.from_target(p)]
    assert [plain(m) for m in found] == [plain(m) for m in messages]


@given(of_draft.filter(bool))
def test_a_draft_s_messages_survive_their_payload(messages: list[Any]) -> None:
    found = payloads.from_draft(payloads.for_target(messages))
    assert [plain(m) for m in found] == [plain(m) for m in payloads.joined(messages)]


def test_commits_of_many_sessions_are_one_payload() -> None:
    commits = [commit(session) for session in range(16)]
    assert len(list(payloads.for_draft(commits))) == 1


def test_an_open_is_a_payload_itself_and_keeps_its_place() -> None:
    opening = Open(2, np.ones(9, np.int32), SamplingParams(), LIMITS, prompt=9)
    messages = [commit(1), LIMITS, opening, Close(1, CloseReason.FINISHED), commit(2)]
    sent = [payloads.from_target(payload) for payload in payloads.for_draft(messages)]
    assert [[type(m) for m in one] for one in sent] == [
        [Commit, Limits],
        [Open],
        [Close, Commit],
    ]


def test_growth_that_follows_on_is_one_record() -> None:
    payload = payloads.for_target([grow(1, 2), grow(3, 2)])
    (whole,) = payloads.from_draft(payload)
    assert plain(whole) == plain(grow(1, 4))


RECORDS = RecordWriter(FROM_TARGET).write([commit(1), commit(2)])


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (RECORDS[:-1], "in the middle of a record"),
        (RECORDS[: len(RECORDS) // 2 + 3], "in the middle of a record"),
        (RECORDS[len(RECORDS) // 2 :], "record 1 came where 0 was due"),
        (b"\xff" * 64, "came where 0 was due"),
        (RECORDS.replace(b"\x02\0\0\0\x03", b"\xff\xff\xff\xff\x03"), "kind 2 with a body"),
    ],
)
def test_records_that_are_none_break_the_rules(data: bytes, says: str) -> None:
    payload = pb.TargetMessage(records=data).SerializeToString()
    with pytest.raises(ProtocolViolation, match=says):
        payloads.from_target(payload)


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (b"\xff garbage", "no message"),
        (b"", "unexpected message: None"),
        (pb.TargetMessage(choice=pb.Choice()).SerializeToString(), "unexpected message: choice"),
    ],
)
def test_what_holds_no_records_breaks_the_rules(payload: bytes, says: str) -> None:
    with pytest.raises(ProtocolViolation, match=says):
        payloads.from_target(payload)
