"""How many members the lists and objects of a JSON text have, before any of them is an object here.

A body of a few MiB can have millions, each of which costs fifty times its bytes and holds the
interpreter, and with it every stream.
"""

from collections.abc import Iterator

MAX_MEMBERS = 1 << 18
"""Most members of all lists and objects of a body: the token ids of a long context are fewer."""
PIECE = 1 << 16
"""Bytes that are looked at at once: others need the interpreter meanwhile."""


def members(text: bytes) -> int:
    """Return a number that the members of all lists and objects do not exceed: where it is more
    than `MAX_MEMBERS`, of commas and opening brackets outside of strings."""
    rough = _starts(text)
    return rough if rough <= MAX_MEMBERS else sum(_outside_of_strings(text))


def _outside_of_strings(text: bytes) -> Iterator[int]:
    """Yield how many members begin in each piece."""
    plain = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    inside = False
    for at in range(0, len(plain), PIECE):
        parts = plain[at : at + PIECE].split(b'"')
        yield _starts(b"".join(parts[inside::2]))
        inside ^= len(parts) % 2 == 0


def _starts(text: bytes) -> int:
    return sum(text.count(byte) for byte in b",[{")
