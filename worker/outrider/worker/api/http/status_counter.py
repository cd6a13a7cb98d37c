"""Counts HTTP answers by status, around any application.

Knows nothing of what is answered.
"""

from collections import Counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class CountCodes:
    """An application that counts the statuses of another one's answers."""

    def __init__(self, app: ASGIApp, codes: "Counter[str]") -> None:
        self._app = app
        self._codes = codes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands the request over and looks at what is sent."""

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._codes[str(message["status"])] += 1
            await send(message)

        await self._app(scope, receive, counted)
