"""Handles on engines that are not there."""

from typing import Any

from outrider.worker.engine.handle import EngineHandle, Listeners


class Handle(EngineHandle):
    """Of an engine that says what a test says; keeps what it is sent."""

    def __init__(self) -> None:
        super().__init__(Listeners())
        self.sent: list[Any] = []

    def send(self, message: Any) -> None:
        self.sent.append(message)

    async def close(self) -> None:
        """Nothing runs."""
