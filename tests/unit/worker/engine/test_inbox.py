"""Inbox of an engine: no message is lost, and none leaves its reader asleep."""

import select
import threading
import time
from collections.abc import Iterator

import pytest

from outrider.worker.engine.transport import PIPE_BYTES, Inbox

LONG_SECONDS = 20.0
"""More than any wake-up takes."""


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    made = Inbox()
    yield made
    made.close()


def readable(inbox: Inbox, seconds: float = 0.0) -> bool:
    """True if a poll returns the inbox within so long."""
    poll = select.poll()
    poll.register(inbox, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def test_messages_come_out_in_order_and_once(inbox: Inbox) -> None:
    for message in range(5):
        inbox.put(message)
    assert inbox.drain() == [0, 1, 2, 3, 4]
    assert inbox.drain() == []


def test_each_message_makes_it_readable_until_its_reader_falls_asleep(inbox: Inbox) -> None:
    assert inbox.fall_asleep()
    assert not readable(inbox)
    inbox.put("one")
    inbox.put("two")
    assert readable(inbox)
    assert readable(inbox), "polling takes nothing out"
    inbox.drain()
    assert inbox.fall_asleep()
    assert not readable(inbox)
    inbox.put("three")
    assert readable(inbox)


def test_nobody_falls_asleep_over_a_message(inbox: Inbox) -> None:
    inbox.put("one")
    assert not inbox.fall_asleep()
    assert inbox.drain() == ["one"]
    assert inbox.fall_asleep()


def test_without_a_reader_no_message_is_lost_and_no_put_blocks(inbox: Inbox) -> None:
    count = 2 * PIPE_BYTES  # more wake-ups than the pipe holds
    for message in range(count):
        inbox.put(message)
    assert readable(inbox)
    assert inbox.drain() == list(range(count))
    assert inbox.fall_asleep()
    assert not readable(inbox)


def test_a_put_wakes_a_sleeping_reader(inbox: Inbox) -> None:
    woken = threading.Event()

    def sleep() -> None:
        if readable(inbox, LONG_SECONDS):
            woken.set()

    reader = threading.Thread(target=sleep)
    reader.start()
    started = time.monotonic()
    inbox.put("wake")
    reader.join()
    assert woken.is_set()
    assert time.monotonic() - started < LONG_SECONDS / 2


def test_many_threads_lose_nothing_and_each_keeps_its_order(inbox: Inbox) -> None:
    threads, each = 8, 2000

    def put(writer: int) -> None:
        for number in range(each):
            inbox.put((writer, number))

    writers = [threading.Thread(target=put, args=(i,)) for i in range(threads)]
    for writer in writers:
        writer.start()
    came: list[tuple[int, int]] = []
    while len(came) < threads * each:
        if inbox.fall_asleep():
            assert readable(inbox, LONG_SECONDS), "a message lies there and nobody was woken"
        came += inbox.drain()
    for writer in writers:
        writer.join()
    assert inbox.drain() == []
    for number in range(threads):
        assert [n for writer, n in came if writer == number] == list(range(each))
