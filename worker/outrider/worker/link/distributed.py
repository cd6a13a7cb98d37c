"""Link through torch.distributed: records in slots, which the engines send themselves.

Leaves the way of slots to `slots`, bytes of messages to `records`, and how the two processes find
each other to `joining`.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from outrider.worker.errors import ProtocolViolation
from outrider.worker.link.process_pair import ProcessPair
from outrider.worker.link.rate_limit import (
    UNREAD_BYTES,
    TokenBucket,
    max_bytes_of_draft,
    max_bytes_of_target,
    max_unread_bytes,
)
from outrider.worker.link.records import (
    NOT_TIMED,
    RecordReader,
    RecordWriter,
    body_for_draft,
    body_for_target,
    message_from_draft,
    message_from_target,
    written,
)
from outrider.worker.link.slots import Slot, Slots
from outrider.worker.messages import FromPeer, Identity


@dataclass(slots=True)
class DistributedLink:
    """One end of a link, a `DirectLink`; for the engine's thread alone."""

    link: int
    slots: Slots
    writer: RecordWriter[Any]
    reader: RecordReader[Any]
    token_bucket: TokenBucket
    max_unread: int
    """Bytes that may wait for room."""
    _unsent: bytearray = field(default_factory=bytearray)

    def send(self, messages: Sequence[Any]) -> None:
        """Send messages; keep what has no room, up to `max_unread` bytes."""
        records = written(messages, self.writer, NOT_TIMED)
        count = 0 if self._unsent else self.slots.write(records)
        if count < len(records):
            self._unsent += memoryview(records)[count:]
            self._send_unsent()
            if len(self._unsent) > self.max_unread:
                raise ProtocolViolation(f"more than {self.max_unread} bytes were left unread")

    def receive(self) -> list[FromPeer]:
        """Read the slots that have come: the messages of each together."""
        parts = [self._messages(slot) for slot in self.slots.take()]
        if self._unsent:
            self._send_unsent()
        self.slots.acknowledge()
        return [part for part in parts if part.messages]

    def fall_asleep(self) -> bool:
        """Have the bell rung; False if there is something to do already."""
        return self.slots.fall_asleep()

    def awake(self, woken: bool) -> None:
        """End a sleep."""
        self.slots.awake(woken)

    def fileno(self) -> int:
        """Return the bell's descriptor."""
        return self.slots.fileno()

    def close(self) -> None:
        """End the connections."""
        self.slots.close()

    def _messages(self, slot: Slot) -> FromPeer:
        """Read a slot, which costs tokens as a record does, and its records."""
        now = time.monotonic()
        self.token_bucket.spend_record(0, now)
        messages = []
        for message, size, _ in self.reader.read(slot.data):
            self.token_bucket.spend_record(size, now)
            messages.append(message)
        return FromPeer(self.link, messages, slot.arrived)

    def _send_unsent(self) -> None:
        with memoryview(self._unsent) as unsent:
            count = self.slots.write(unsent)
        del self._unsent[:count]


def target_end(link: int, pair: ProcessPair, own: Identity) -> DistributedLink:
    """Return a target's end of a link, by its own limits."""
    return DistributedLink(
        link,
        Slots(pair),
        RecordWriter(body_for_draft),
        RecordReader(message_from_draft, max_bytes_of_draft(own.sessions)),
        TokenBucket.of_draft(time.monotonic(), own.sessions),
        max_unread_bytes(own.context, own.sessions),
    )


def draft_end(link: int, pair: ProcessPair, own: Identity) -> DistributedLink:
    """Return a draft's end of a link, by its own limits."""
    return DistributedLink(
        link,
        Slots(pair),
        RecordWriter(body_for_target),
        RecordReader(message_from_target, max_bytes_of_target(own.context)),
        TokenBucket.of_target(time.monotonic(), own.context, own.sessions),
        UNREAD_BYTES,
    )
