"""Defaults of requests that depend on more than one field."""

import pytest

from outrider.contract.settings import MAX_STREAM_INTERVAL_MS, STREAM_INTERVAL_MS
from outrider.worker.api.request import stream_seconds


@pytest.mark.parametrize(
    ("wanted", "stops", "milliseconds"),
    [
        (None, (), STREAM_INTERVAL_MS),
        (0, (), 0),
        (MAX_STREAM_INTERVAL_MS, (), MAX_STREAM_INTERVAL_MS),
        (None, ("end",), STREAM_INTERVAL_MS),
        (3, ("end",), 3),
        (MAX_STREAM_INTERVAL_MS, ("end",), STREAM_INTERVAL_MS),
    ],
)
def test_tokens_in_which_a_stop_string_may_be_come_as_soon_as_by_default(
    wanted: int | None, stops: tuple[str, ...], milliseconds: int
) -> None:
    assert stream_seconds(wanted, stops) == milliseconds / 1000
