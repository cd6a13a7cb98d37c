"""The server's handle on its engine: what it is asked, what it answers, how it ends.

`engine_process` and `engine_thread` say where the engine runs. An engine is never restarted in
place: when it is gone, its server says so to every caller and exits, and whoever supervises the
worker starts a fresh one.
"""

import abc
import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from outrider.worker.engine.retry_after import RetryAfter
from outrider.worker.errors import ModelError, Stopping
from outrider.worker.messages import (
    Cancel,
    EngineReport,
    Failed,
    Finish,
    Finished,
    LinkStates,
    Progress,
    Ready,
    SessionEnded,
    Submit,
    Tokens,
    ToPeer,
)

logger = logging.getLogger(__name__)

Event = Tokens | Finished


class EngineHandle(abc.ABC):
    """A running engine, as the server's loop sees it."""

    def __init__(self) -> None:
        self.ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self.ready.add_done_callback(_retrieve)
        self.gone = asyncio.Event()
        self.report = EngineReport()
        self.retry_after = RetryAfter()
        self.links: tuple[bytes, ...] = ()
        """How the target's links stand, one serialised `Link` each."""
        self.answers: dict[int, asyncio.Queue[Event | None]] = {}
        self.on_peer: Callable[[Sequence[ToPeer]], None] = lambda messages: None
        """Takes the engine's messages for peers, where the server holds the streams."""
        self.on_submit: Callable[[Submit], None] = lambda request: None
        """Sees every request that is handed over."""
        self.on_event: Callable[[Event], None] = lambda event: None
        """Sees every event of an answer."""
        self.on_finished: Callable[[Finished], None] = lambda event: None
        """Sees the end of every answer."""
        self.on_session: Callable[[SessionEnded], None] = lambda ended: None
        """Sees the end of every draft session that is traced."""

    @abc.abstractmethod
    def send(self, message: Any) -> None:
        """Hands a message over; one for an engine that is gone is dropped."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Ends the engine and waits until it has ended."""

    def submit(self, request: Submit) -> "asyncio.Queue[Event | None]":
        """Hands a request over; the queue then yields its events, None if the engine dies."""
        if self.gone.is_set():
            raise Stopping("the engine is gone; this worker is stopping")
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self.answers[request.request] = queue
        self.on_submit(request)
        self.send(request)
        return queue

    def cancel(self, request: int, finish: Finish = Finish.CANCELLED) -> None:
        """Tells the engine that nobody waits any more; its Finished event still comes."""
        self.send(Cancel(request, finish))

    def end(self) -> None:
        """The engine is gone: ends every open answer."""
        if not self.ready.done():
            self.ready.set_exception(ModelError("the engine died while it started"))
        self.gone.set()
        for queue in self.answers.values():
            queue.put_nowait(None)

    def deliver(self, messages: Sequence[Any]) -> None:
        """Takes messages of the engine."""
        for message in messages:
            self._deliver(message)

    def _deliver(self, message: object) -> None:
        match message:
            case Tokens(request=request):
                self._answer(request, message)
            case Finished(request=request):
                self._answer(request, message)
                self.answers.pop(request, None)
                self.retry_after.ended(message.timing)
                self.on_finished(message)
            case SessionEnded():
                self.on_session(message)
            case ToPeer():
                self.on_peer((message,))
            case EngineReport():
                self.report = message
            case LinkStates(links=links):
                self.links = links
            case Progress(stage=stage):
                logger.info("engine: %s", stage)
            case Ready():
                self.ready.set_result(message)
            case Failed(detail=detail):
                self.ready.set_exception(ModelError(detail))
            case _:
                raise TypeError(f"the engine sent {message!r}")

    def _answer(self, request: int, event: Event) -> None:
        self.on_event(event)
        queue = self.answers.get(request)
        if queue is not None:
            queue.put_nowait(event)


def _retrieve(future: "asyncio.Future[Ready]") -> None:
    """Marks a start-up failure as seen; whoever awaits `ready` still gets it."""
    if not future.cancelled():
        future.exception()
