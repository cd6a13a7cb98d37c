"""The server's handle on its engine: requests in, events of answers out.

Leaves where the engine runs to `launch.process` and `launch.thread`. An engine is never restarted
in place: when it is gone, its server ends every call and exits, and the supervisor of the worker
starts a fresh one.
"""

import abc
import asyncio
import logging
import math
import statistics
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from outrider.contract.counters import Counters
from outrider.contract.inference import Timing
from outrider.contract.state import Link
from outrider.worker.engine.heartbeat import Heartbeat
from outrider.worker.engine.open_answer import (
    AnswerReader,
    Event,
    OpenAnswer,
    count_finish,
    with_answers,
)
from outrider.worker.errors import ModelError, Stopping
from outrider.worker.messages import (
    Alive,
    AskAlive,
    AskTimeline,
    Cancel,
    DirectLinkLost,
    EngineReport,
    Failed,
    Finish,
    Finished,
    LinkStates,
    Measure,
    Measured,
    Progress,
    Ready,
    SegmentTraced,
    SessionEnded,
    StageGroupState,
    Submit,
    Timeline,
    Tokens,
    ToPeer,
)

logger = logging.getLogger(__name__)

GONE = "the engine is gone; this worker is stopping"
MIN_SECONDS, MAX_SECONDS = 1, 60
WINDOW = 32
"""Requests that the mean is taken over: enough to even out lengths, few enough to follow a load."""


def _ignore(message: object) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Functions that an engine's handle calls; each does nothing by default."""

    on_submit: Callable[[Submit], None] = _ignore
    """Called with every request that is handed over."""
    on_event: Callable[[Event], None] = _ignore
    """Called with every event of an answer."""
    on_finished: Callable[[Finished], None] = _ignore
    """Called with the end of every answer."""
    on_session: Callable[[SessionEnded], None] = _ignore
    """Called with the end of every draft session that is traced."""
    on_segment: Callable[[SegmentTraced], None] = _ignore
    """Called with every segment of a request that is traced."""
    on_peer: Callable[[Sequence[ToPeer | DirectLinkLost]], None] = _ignore
    """Called with the engine's messages for peers and the links that it has lost, where the server
    has the streams."""


@dataclass(slots=True)
class RetryAfter:
    """Run times of the latest requests of an engine, by which a refused one is told to return."""

    _seconds: "deque[float]" = field(default_factory=lambda: deque(maxlen=WINDOW))
    """Seconds from the first step to the end of each; pauses between requests do not count."""

    def add(self, timing: Timing) -> None:
        """Note the end of a request; one that never ran does not count."""
        if timing.queued_seconds:
            self._seconds.append(timing.total_seconds - timing.queued_seconds)

    def seconds_until_room(self, waiting: int, running: int) -> int:
        """Estimate the whole seconds, 1 to 60, until as many requests as wait now have begun.

        Little's law: `running` at once, of `each` seconds, end at the rate of `running / each`.
        Where none waits, one of those that run has to end. 1 if none has ended yet.
        """
        each = statistics.fmean(self._seconds) if self._seconds else 0.0
        seconds = max(1, waiting) * each / max(1, running)
        return min(MAX_SECONDS, max(MIN_SECONDS, math.ceil(seconds)))


class EngineHandle(abc.ABC):
    """A running engine, as the server's loop sees it."""

    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners
        self.ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        # a start-up failure counts as seen; awaiting `ready` still raises it
        self.ready.add_done_callback(lambda future: future.cancelled() or future.exception())
        self.gone = asyncio.Event()
        self.heartbeat = Heartbeat(lambda: self.send(AskAlive()))
        self.report = EngineReport()
        self.retry_after = RetryAfter()
        self.links: tuple[Link, ...] = ()
        """The state of each of a target's links."""
        self.stages: StageGroupState | None = None
        """Of a pipelined target, once it has begun."""
        self.stages_changed = asyncio.Event()
        """Set where that is new."""
        self.answers: dict[int, OpenAnswer] = {}
        self._ended_by_text = Counters()
        """Counts of answers that their text may end."""
        self._timeline: asyncio.Future[Timeline] | None = None
        """The one that the engine was asked for, until it comes."""
        self._measured: deque[asyncio.Future[Measured]] = deque()
        """What the engine was asked to measure, in the order in which it comes."""

    @abc.abstractmethod
    def send(self, message: Any) -> None:
        """Hand a message over; drop it if the engine is gone."""

    @abc.abstractmethod
    async def close(self) -> None:
        """End the engine and wait until it has ended."""

    def submit(self, request: Submit, reader: AnswerReader) -> "asyncio.Queue[Event | None]":
        """Hand a request over; the queue yields its events, None if the engine dies.

        `reader` reads its tokens as they come, whether or not anybody takes them from the queue.

        Raises `Stopping` if the engine is gone.
        """
        if self.gone.is_set():
            raise Stopping(GONE)
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self.answers[request.request] = OpenAnswer(request, reader, queue)
        self._listeners.on_submit(request)
        self.send(request)
        return queue

    def cancel(self, request: int, finish: Finish = Finish.CANCELLED) -> None:
        """Tell the engine that the caller has gone; its `Finished` event still comes."""
        self.send(Cancel(request, finish))

    async def timeline(self) -> Timeline:
        """Return what the engine computed lately; nothing if it is gone.

        Calls share one answer until it comes: it costs the engine time between two passes.
        """
        if self.gone.is_set():
            return Timeline()
        if self._timeline is None:
            self.send(AskTimeline())
            self._timeline = asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._timeline)  # a caller may go, others stay

    async def measured(self, measure: Measure) -> Measured:
        """Return what the engine, which is not told yet how to run, measures.

        Raises `Stopping` if it is gone before that.
        """
        if self.gone.is_set():
            raise Stopping(GONE)
        self._measured.append(asyncio.get_running_loop().create_future())
        self.send(measure)
        return await self._measured[-1]

    def end(self) -> None:
        """End every open answer: the engine is gone."""
        self._answer_timeline(Timeline())
        if not self.ready.done():
            self.ready.set_exception(ModelError("the engine died while it started"))
        self.gone.set()
        for future in self._measured:
            if not future.done():  # else its caller has gone
                future.set_exception(Stopping(GONE))
        for answer in self.answers.values():
            answer.events.put_nowait(None)

    def deliver(self, messages: Sequence[Any]) -> None:
        """Handle messages of the engine."""
        for message in messages:
            self._deliver(message)

    def _deliver(self, message: object) -> None:
        match message:
            case Tokens():
                self._take(message)
            case Finished():
                self._finish(message)
            case SessionEnded():
                self._listeners.on_session(message)
            case SegmentTraced():
                self._listeners.on_segment(message)
            case Timeline():
                self._answer_timeline(message)
            case Measured():
                future = self._measured.popleft()
                if not future.done():  # else its caller has gone
                    future.set_result(message)
            case ToPeer() | DirectLinkLost():
                self._listeners.on_peer((message,))
            case EngineReport():
                self.report = with_answers(message, self._ended_by_text)
            case LinkStates(links=links):
                self.links = links
            case StageGroupState():
                self.stages = message
                self.stages_changed.set()
            case Progress(stage=stage):
                logger.info("engine: %s", stage)
            case Alive():
                self.heartbeat.beat()
            case Ready():
                self.heartbeat.loaded(message.longest_pass)
                self.ready.set_result(message)
            case Failed(detail=detail):
                self.ready.set_exception(ModelError(detail))
            case _:
                raise TypeError(f"the engine sent {message!r}")

    def _answer_timeline(self, timeline: Timeline) -> None:
        """Answer all that wait for a timeline."""
        asked, self._timeline = self._timeline, None
        if asked is not None:
            asked.set_result(timeline)

    def _take(self, tokens: Tokens) -> None:
        """Hand on tokens of an answer; have the engine end one whose text has ended."""
        answer = self.answers[tokens.request]
        if (kept := answer.take(tokens)) is None:
            return
        if answer.submit.ends_by_text:
            self._ended_by_text.generation_tokens += len(kept.ids)
        self._listeners.on_event(kept)
        answer.events.put_nowait(kept)
        if answer.reader.ended:
            self.cancel(tokens.request, Finish.STOP)

    def _finish(self, finished: Finished) -> None:
        """Hand on the end of an answer."""
        answer = self.answers.pop(finished.request)
        finished = answer.end(finished)
        if answer.submit.ends_by_text:
            count_finish(self._ended_by_text, finished.finish)
        self.retry_after.add(finished.timing)
        self._listeners.on_event(finished)
        answer.events.put_nowait(finished)
        self._listeners.on_finished(finished)
