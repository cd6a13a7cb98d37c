"""A starting target waits for its first link, until it knows how its drafts are."""

import asyncio
import time

import pytest

from outrider.protos.v1 import control_pb2 as pb
from outrider.worker.server.readiness import wait_for_first_link

LONG = 600.0


def link(state: "pb.LinkState.ValueType") -> pb.Link:
    return pb.Link(address="d:1", state=state)


CONNECTING, UP = link(pb.LINK_STATE_CONNECTING), link(pb.LINK_STATE_UP)
REFUSED = link(pb.LINK_STATE_REFUSED)


@pytest.mark.parametrize("known", [[UP], [REFUSED], [CONNECTING, UP], []])
def test_it_waits_until_a_link_is_up_or_refused_or_none_is_wanted(known: list[pb.Link]) -> None:
    told = iter([[CONNECTING], [CONNECTING, CONNECTING], known])
    began = time.monotonic()
    asyncio.run(wait_for_first_link(lambda: next(told), LONG))
    assert next(told, None) is None
    assert time.monotonic() - began < LONG


def test_it_goes_on_without_drafts_after_a_while() -> None:
    asyncio.run(wait_for_first_link(lambda: [CONNECTING], 0.05))
