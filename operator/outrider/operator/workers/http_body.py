"""The whole body of an HTTP answer, up to a limit.

`StreamReader.read(n)` of aiohttp returns what has come so far, and a long answer comes in parts.
"""

from aiohttp import ClientResponse


class BodyTooLong(Exception):
    """An answer has more bytes than are read; the message says how many are."""


async def read_body(answer: ClientResponse, max_bytes: int) -> bytes:
    """Return the body of an answer; raise `BodyTooLong` beyond `max_bytes`."""
    body = bytearray()
    async for part in answer.content.iter_any():
        body += part
        if len(body) > max_bytes:
            raise BodyTooLong(f"more than {max_bytes} bytes")
    return bytes(body)
