"""A starting target waits for its first link, until it knows how its drafts are."""

import asyncio
import time

import pytest

from outrider.contract.state import Link, LinkState
from outrider.worker.server.readiness import wait_for_first_link

LONG = 600.0


CONNECTING = Link("d:1")
UP, REFUSED = (Link("d:1", state) for state in (LinkState.UP, LinkState.REFUSED))


@pytest.mark.parametrize("known", [[UP], [REFUSED], [CONNECTING, UP], []])
def test_it_waits_until_a_link_is_up_or_refused_or_none_is_wanted(known: list[Link]) -> None:
    told = iter([[CONNECTING], [CONNECTING, CONNECTING], known])
    began = time.monotonic()
    asyncio.run(wait_for_first_link(lambda: next(told), LONG))
    assert next(told, None) is None
    assert time.monotonic() - began < LONG


def test_it_goes_on_without_drafts_after_a_while() -> None:
    asyncio.run(wait_for_first_link(lambda: [CONNECTING], 0.05))
