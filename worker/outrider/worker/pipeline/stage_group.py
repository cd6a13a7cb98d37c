"""The group of a pipelined target's stages, over all its lives: begun, lost, begun again.

Never waits: `advance` begins a life when one is due, and says when it is up. Leaves records and
results to `leader`, streams to `wire`, requests to whoever calls it.
"""

import logging
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

from outrider.worker.errors import StageLost, StageRefused
from outrider.worker.pipeline.records import Record, Results
from outrider.worker.pipeline.wire.hello import StageFacts

logger = logging.getLogger(__name__)

FIRST_SECONDS, MAX_SECONDS = 0.05, 2.0
"""Seconds between two attempts to begin a life, at first and at most; each failure doubles them."""

Facts = tuple[StageFacts, ...]


class Life(Protocol):
    """Links of one life of the group, as `pipeline.wire.stage_client` has them."""

    @property
    def closed(self) -> str | None: ...
    @property
    def ended(self) -> bool: ...
    def begin(self, first: str, last: str) -> "Future[Facts]": ...
    def send(self, message: Record) -> None: ...
    def poll(self) -> Sequence[Results]: ...
    def end(self, reason: str) -> None: ...
    def close(self, reason: str) -> None: ...


class StageGroupLinks:
    """The leader's links to its stages; for one thread."""

    def __init__(
        self,
        first: str,
        last: str,
        new_life: Callable[[int], Life],
        notify: Callable[[], None],
        link: str = "grpc",
    ) -> None:
        """`first` is the address that takes records, `last` that which has the results; `new_life`
        takes the number of a life; `notify` is called, on any thread, when `advance` or `poll` may
        have news; `link`: what carries records, for people."""
        self.link = link
        self.facts: Facts = ()
        """Facts of the stages in the last life that was up."""
        self._addresses = first, last
        self._new_life = new_life
        self._notify = notify
        self._life: Life | None = None
        self._beginning: Future[Facts] | None = None
        self._due = 0.0
        self._delay = FIRST_SECONDS
        self.up = False
        self.detail = "its stages have not answered yet"
        """Why it is not up, in words."""
        self.refused = False
        """True if its stages answered that they cannot work together."""
        self.losses = 0
        """Lives that ended after they were up."""

    def advance(self, now: float) -> Facts | None:
        """Begin a life if one is due; return the facts of all stages once it is up."""
        if self.up:
            return None
        if self._beginning is None:
            if now >= self._due and (self._life is None or self._life.ended):
                self._begin()
            return None
        if not self._beginning.done():
            return None
        beginning, self._beginning = self._beginning, None
        try:
            facts = beginning.result()
        except (StageLost, StageRefused) as error:
            self.refused = isinstance(error, StageRefused)
            self._rest(str(error), now)
            return None
        self.up, self._delay, self.facts = True, FIRST_SECONDS, facts
        self.refused, self.detail = False, ""
        logger.info("a group of %d stages is up", len(facts))
        return facts

    def poll(self, now: float) -> Sequence[Results]:
        """Take the results that have come; raises `StageLost` once, when a life has ended."""
        if not self.up or self._life is None:
            return ()
        try:
            return self._life.poll()
        except StageLost as error:
            self.up = False
            self.losses += 1
            self._rest(str(error), now)
            raise

    def send(self, record: Record) -> None:
        """Send a record to the first stage; drop it if the group has ended."""
        if self._life is not None:
            self._life.send(record)

    def max_wait(self, now: float) -> float | None:
        """Return the seconds until `advance` has something to do; None: it will be notified."""
        if self.up or self._beginning is not None:
            return None
        return max(FIRST_SECONDS / 2, self._due - now)

    def close(self) -> None:
        """End the group."""
        if self._life is not None:
            self._life.close("the leader ends the group")

    def _begin(self) -> None:
        self._life = self._new_life(secrets.randbits(64))
        self._beginning = self._life.begin(*self._addresses)
        self._beginning.add_done_callback(lambda _: self._notify())

    def _rest(self, detail: str, now: float) -> None:
        if detail != self.detail:
            logger.warning("the group of stages is down: %s", detail)
        self.detail = detail
        self._due, self._delay = now + self._delay, min(2 * self._delay, MAX_SECONDS)
