"""The loop of one stage: receive records, step, send; one group after the other.

Runs on a thread of its own. Leaves the records to `Stage`, the links to whoever attaches them: a
stage receives records of the party before and sends to the next, the last one results to the
leader. Whatever happens to any link of a group, all links of that group close; the reason travels
upstream. `wire` carries it over gRPC.
"""

import contextlib
import logging
import queue
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from outrider.worker.errors import GroupLost, ProtocolViolation, StageLost
from outrider.worker.pipeline.records import Record, Results, Segment, visited
from outrider.worker.pipeline.stage import Stage

logger = logging.getLogger(__name__)

MAX_RECORDS = 1 << 14
"""Most records that wait in a stage; a leader's segments, and what moves them, are far fewer."""
MAX_BYTES = 1 << 28
"""Most bytes of their arrays."""
GRAMMAR_SECONDS = 0.01
"""Seconds between two looks for a grammar, where rows wait for it and nothing else comes."""
UNWATCHED: AbstractContextManager[None] = contextlib.nullcontext()


class StageLinks(Protocol):
    """Links of one stage; for one thread."""

    closed: str | None
    """Reason why the group has ended; None: it lives."""
    received_bytes: int
    """Bytes received in this group, with what the transport adds in them."""

    @property
    def sent_bytes(self) -> int:
        """Bytes sent likewise."""

    def send(self, message: Record | Results) -> None:
        """Send without waiting, after all that was sent before; drop it if the group has ended."""

    def poll(self) -> Sequence[Record]:
        """Take what has come, in order. Raises `StageLost` once the group has ended."""

    def receive(self, seconds: float | None) -> Sequence[Record]:
        """Wait for something to come, at most `seconds` (None: no limit); then as `poll`."""

    def close(self, reason: str) -> None:
        """End the group; those before this stage get the reason, up to the leader."""


@dataclass(slots=True)
class StageCounters:
    """What one stage has done since it started."""

    groups: int = 0
    """Groups that it took part in."""
    segments: int = 0
    """Segments computed, those without rows not counted."""
    rows: int = 0
    """Rows computed."""
    busy_seconds: float = 0.0
    """Seconds of computing them and of handling other records."""


class Traffic(NamedTuple):
    """Bytes of groups that have been served, and the links of the one that is; replaced as a whole,
    so that what others read of it never goes down."""

    received: int = 0
    sent: int = 0
    links: StageLinks | None = None

    @property
    def received_bytes(self) -> int:
        return self.received + (0 if self.links is None else self.links.received_bytes)

    @property
    def sent_bytes(self) -> int:
        return self.sent + (0 if self.links is None else self.links.sent_bytes)

    def ended(self) -> "Traffic":
        """Return it with the bytes of the last group, without its links."""
        return Traffic(self.received_bytes, self.sent_bytes)


class StageLoop:
    """One stage's thread: `attach` groups from others, `run` it on its own."""

    def __init__(
        self,
        make_stage: Callable[[], Stage],
        watch: AbstractContextManager[None] = UNWATCHED,
    ) -> None:
        """`make_stage` returns a stage without sequences; it is called for each group. `watch` is
        entered for each pass."""
        self._make_stage = make_stage
        self._watch = watch
        self._groups: queue.SimpleQueue[StageLinks | None] = queue.SimpleQueue()
        self.traffic = Traffic()
        self.rows_waiting = 0
        """Rows that have come and are not computed."""
        self.counters = StageCounters()

    def attach(self, links: StageLinks) -> None:
        """Serve a group that has come up, after the one before, which has ended."""
        self._groups.put(links)

    def stop(self) -> None:
        """End the loop once its group has ended."""
        self._groups.put(None)

    @property
    def links(self) -> StageLinks | None:
        """Links of the group that lives; None: there is none."""
        links = self.traffic.links
        return links if links is not None and links.closed is None else None

    def run(self) -> None:
        """Serve groups until `stop`; raises `GroupLost` when a rank of this stage is gone."""
        while (links := self._groups.get()) is not None:
            self.counters.groups += 1
            self.traffic = self.traffic._replace(links=links)
            try:
                self._serve(self._make_stage(), links)
            except StageLost as error:
                logger.info("all sequences of the group are forgotten: %s", error)
            except ProtocolViolation as error:
                links.close(f"a message breaks the rules: {error}")
            except GroupLost as error:
                links.close(f"it ends: {error}")
                raise
            except Exception as error:
                logger.exception("this stage failed")
                links.close(f"it failed: {type(error).__name__}: {error}")
            finally:
                self.traffic, self.rows_waiting = self.traffic.ended(), 0

    def _serve(self, stage: Stage, links: StageLinks) -> None:
        """Handle records until the group ends: raises `StageLost`, and `ProtocolViolation`."""
        while True:
            take(stage, links.receive(GRAMMAR_SECONDS if stage.waits else None))
            stage.answer_aside()
            send(stage, links)
            while stage.incoming:
                waiting = (r.count for r in stage.incoming if isinstance(r, Segment))
                self.rows_waiting = sum(waiting)
                self._step(stage)
                take(stage, links.poll())  # before anything is sent: it may kill rows of that
                send(stage, links)
            self.rows_waiting = 0

    def _step(self, stage: Stage) -> None:
        oldest = stage.incoming[0]
        began = time.monotonic()
        with self._watch if isinstance(oldest, Segment) else UNWATCHED:
            stage.step()
        ended = time.monotonic()
        self.counters.busy_seconds += ended - began
        if isinstance(oldest, Segment):
            made = stage.outgoing.pop()
            assert isinstance(made, Segment | Results)
            stage.outgoing.append(visited(oldest, made, began, ended))
        if isinstance(oldest, Segment) and oldest.count:
            self.counters.segments += 1
            self.counters.rows += oldest.count


def send(stage: Stage, links: StageLinks) -> None:
    """Send all that a stage has made."""
    while stage.outgoing:
        links.send(stage.outgoing.popleft())


def take(stage: Stage, records: Sequence[Record]) -> None:
    """Hand records to a stage; raise `ProtocolViolation` where more wait than may."""
    for record in records:
        stage.receive(record)
    waiting = len(stage.incoming)
    if waiting > MAX_RECORDS:
        raise ProtocolViolation(f"{waiting} records wait; {MAX_RECORDS} may")
    held = sum(record.bytes for record in stage.incoming)
    if held > MAX_BYTES:
        raise ProtocolViolation(f"{held} bytes wait in {waiting} records; {MAX_BYTES} may")
