"""Handles on engines that are not there."""

from typing import Any

from outrider.worker.engine.handle import EngineHandle, Listeners
from outrider.worker.engine.open_answer import Event


class Handle(EngineHandle):
    """Of an engine that says what a test says; keeps what it is sent, and what a listener hears of
    answers."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.heard: list[Event] = []
        super().__init__(Listeners(on_event=self.heard.append))

    def send(self, message: Any) -> None:
        self.sent.append(message)

    async def close(self) -> None:
        """Nothing runs."""
