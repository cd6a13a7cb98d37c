"""Engine thread: a draft's engine on a thread of its server's process.

A draft serves no text and few streams. Growth has to follow a commit soon, and a process between
the two would cost as much as a pass.
"""

import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import Any

from outrider.contract.settings import WorkerSettings
from outrider.worker.engine.handle import EngineHandle, Listeners
from outrider.worker.engine.transport import Closed, ThreadTransport
from outrider.worker.host.process import keep_to
from outrider.worker.launch.prepare import Models
from outrider.worker.parallel.placement import leaders_processors

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 2.0


class EngineThread(EngineHandle):
    """An engine on a thread, from loading to the end."""

    def __init__(self, settings: WorkerSettings, models: Models, listeners: Listeners) -> None:
        super().__init__(listeners)
        self._loop = asyncio.get_running_loop()
        self._transport = ThreadTransport(self._from_engine)
        self._thread = threading.Thread(
            target=self._run, args=(settings, models), name="engine", daemon=True
        )
        self._thread.start()

    def send(self, message: Any) -> None:
        """Put a message into the engine's inbox."""
        self._transport.inbox.put(message)

    async def close(self) -> None:
        """End the loop after its present pass; an engine that still loads ends with the process."""
        self.send(Closed())
        await asyncio.to_thread(self._thread.join, CLOSE_SECONDS)

    def _run(self, settings: WorkerSettings, models: Models) -> None:
        keep_to(leaders_processors(settings))
        try:
            from outrider.worker.launch.run import run_engine  # takes a second

            run_engine(settings, models, self._transport)
        except Exception:
            logger.exception("the engine failed")
        finally:
            self._on_loop(self.end)

    def _from_engine(self, messages: Sequence[Any]) -> None:
        self._on_loop(self.deliver, messages)

    def _on_loop(self, function: Any, *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop is closed: the process is about to end
            logger.info("the server has exited before its engine; the engine stops")
