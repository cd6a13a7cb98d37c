"""How many members the lists and objects of a JSON text have, before any of them is an object here.

A body of a few MiB can have millions, each of which costs fifty times its bytes and holds the
interpreter, and with it every stream.
"""

from collections.abc import Iterator

MAX_MEMBERS = 1 << 18
"""Most members of all lists and objects of a body, or of a model's JSON file: the token ids of a
long context are fewer."""
PIECE = 1 << 16
"""Bytes that are looked at at once: others need the interpreter meanwhile."""


def members(text: bytes, most: int = MAX_MEMBERS) -> int:
    """Return a number that the members of all lists and objects do not exceed: where it is more
    than `most`, of commas and opening brackets outside of strings."""
    rough = sum(_starts(text[at : at + PIECE]) for at in range(0, len(text), PIECE))
    return rough if rough <= most else sum(_outside_of_strings(text))


def _outside_of_strings(text: bytes) -> Iterator[int]:
    """Yield how many members begin in each piece."""
    inside, rest = False, b""
    for at in range(0, len(text), PIECE):
        piece = rest + text[at : at + PIECE]
        whole = len(piece) - (len(piece) - len(piece.rstrip(b"\\"))) % 2
        rest = piece[whole:]  # begins an escape
        plain = piece[:whole].replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = plain.split(b'"')
        yield _starts(b"".join(parts[inside::2]))
        inside ^= len(parts) % 2 == 0


def _starts(text: bytes) -> int:
    return sum(text.count(byte) for byte in b",[{")
