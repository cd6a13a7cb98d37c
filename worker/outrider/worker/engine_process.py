"""The server's handle on its engine process: start it, talk to it, notice its death.

Knows nothing of text or gRPC. An engine is never restarted in place: when it dies, its server says
so to every caller and exits, and whoever supervises the worker starts a fresh one.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from outrider.contract.settings import WorkerSettings
from outrider.worker import channel
from outrider.worker.errors import ModelError, Stopping
from outrider.worker.messages import (
    Cancel,
    Failed,
    Finished,
    Progress,
    Ready,
    Report,
    Submit,
    Tokens,
    ToPeer,
)

logger = logging.getLogger(__name__)

Event = Tokens | Finished
QUIET_LIBRARIES = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
"""The engine has threads of its own; those of torch, which only loads, must not spin."""


@dataclass(slots=True)
class Engine:
    """A running engine process."""

    process: asyncio.subprocess.Process
    channel: channel.AsyncChannel
    on_peer: Callable[[int, bytes], None]
    """Called with (link, payload) for each message that the engine has for a peer."""
    ready: asyncio.Future[Ready]
    gone: asyncio.Event
    report: Report
    answers: dict[int, asyncio.Queue[Event | None]]

    @classmethod
    async def start(
        cls, settings: WorkerSettings, prepared: Path, on_peer: Callable[[int, bytes], None]
    ) -> "Engine":
        """Starts `python -m outrider.worker engine` with one end of a socket pair.

        `prepared` is the file that `prepare` wrote: where this role's weights lie.
        """
        ours, theirs = channel.pair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "outrider.worker", "engine"),
                *("--channel", str(theirs.fileno()), "--prepared", str(prepared)),
                stdin=asyncio.subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **QUIET_LIBRARIES},
            )
        assert process.stdin is not None
        process.stdin.write(settings.to_json().encode())
        process.stdin.close()
        engine = cls(
            process=process,
            channel=await channel.AsyncChannel.open(ours),
            on_peer=on_peer,
            ready=asyncio.get_running_loop().create_future(),
            gone=asyncio.Event(),
            report=Report(),
            answers={},
        )
        engine.ready.add_done_callback(_retrieve)
        return engine

    async def listen(self) -> None:
        """Delivers the engine's messages until it is gone, then ends every open answer."""
        try:
            while True:
                self._deliver(await self.channel.receive())
        except channel.ChannelClosed:
            status = await self.process.wait()
            logger.error("the engine process is gone (exit status %d)", status)
        finally:
            if not self.ready.done():
                self.ready.set_exception(ModelError("the engine process died while it started"))
            self.gone.set()
            for queue in self.answers.values():
                queue.put_nowait(None)

    def submit(self, request: Submit) -> "asyncio.Queue[Event | None]":
        """Hands a request over; the queue then yields its events, None if the engine dies."""
        if self.gone.is_set():
            raise Stopping("the engine is gone; this worker is stopping")
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self.answers[request.request] = queue
        self.channel.send(request)
        return queue

    def cancel(self, request: int) -> None:
        """Tells the engine that nobody waits any more; its Finished event still comes."""
        self.channel.send(Cancel(request))

    def _deliver(self, message: object) -> None:
        match message:
            case Tokens(request=request):
                self._answer(request, message)
            case Finished(request=request):
                self._answer(request, message)
                self.answers.pop(request, None)
            case ToPeer(link=link, payload=payload):
                self.on_peer(link, payload)
            case Report():
                self.report = message
            case Progress(stage=stage):
                logger.info("engine: %s", stage)
            case Ready():
                self.ready.set_result(message)
            case Failed(detail=detail):
                self.ready.set_exception(ModelError(detail))
            case _:
                raise TypeError(f"the engine sent {message!r}")

    def _answer(self, request: int, event: Event) -> None:
        queue = self.answers.get(request)
        if queue is not None:
            queue.put_nowait(event)


def _retrieve(future: "asyncio.Future[Ready]") -> None:
    """Marks a start-up failure as seen; whoever awaits `ready` still gets it."""
    if not future.cancelled():
        future.exception()
