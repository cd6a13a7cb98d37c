"""The loop of one stage: receive records, step, send; one group after the other.

Runs on a thread of its own. Leaves the records to `Stage`, the links to whoever attaches them.
"""

import logging
import queue
import time
from collections.abc import Callable
from dataclasses import dataclass

from outrider.worker.errors import ProtocolViolation, StageLost
from outrider.worker.pipeline.records import Segment
from outrider.worker.pipeline.stage import Stage
from outrider.worker.pipeline.transport import StageLinks

logger = logging.getLogger(__name__)


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
    received_bytes: int = 0
    """Of the groups that have ended."""
    sent_bytes: int = 0
    """Of the groups that have ended."""


class StageLoop:
    """One stage's thread: `attach` groups from others, `run` it on its own."""

    def __init__(self, make_stage: Callable[[], Stage]) -> None:
        """`make_stage` returns a stage without sequences; it is called for each group."""
        self._make_stage = make_stage
        self._groups: queue.SimpleQueue[StageLinks | None] = queue.SimpleQueue()
        self._links: StageLinks | None = None
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
        """Of the group that lives; None: there is none."""
        links = self._links
        return links if links is not None and links.closed is None else None

    def run(self) -> None:
        """Serve groups until `stop`."""
        while (links := self._groups.get()) is not None:
            self.counters.groups += 1
            self._links = links
            try:
                self._serve(self._make_stage(), links)
            except StageLost as error:
                logger.info("all sequences of the group are forgotten: %s", error)
            except ProtocolViolation as error:
                links.close(f"a message breaks the rules: {error}")
            except Exception as error:
                logger.exception("this stage failed")
                links.close(f"it failed: {type(error).__name__}: {error}")
            finally:
                self.counters.received_bytes += links.received_bytes
                self.counters.sent_bytes += links.sent_bytes
                self._links, self.rows_waiting = None, 0

    def _serve(self, stage: Stage, links: StageLinks) -> None:
        """Handle records until the group ends: raises `StageLost`, and `ProtocolViolation`."""
        while True:
            for record in links.receive(None):
                stage.receive(record)
            while stage.incoming:
                waiting = (r.count for r in stage.incoming if isinstance(r, Segment))
                self.rows_waiting = sum(waiting)
                self._step(stage)
                for record in links.poll():  # before anything is sent: it may kill rows of that
                    stage.receive(record)
                while stage.outgoing:
                    links.send(stage.outgoing.popleft())
            self.rows_waiting = 0

    def _step(self, stage: Stage) -> None:
        oldest = stage.incoming[0]
        began = time.perf_counter()
        stage.step()
        self.counters.busy_seconds += time.perf_counter() - began
        if isinstance(oldest, Segment) and oldest.count:
            self.counters.segments += 1
            self.counters.rows += oldest.count
