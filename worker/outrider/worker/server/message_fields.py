"""How many fields a protobuf message has, before any of them is an object here.

An entry of a map takes eleven bytes of a message and hundreds of memory; all are read on the loop
that serves everybody.
"""

import functools
from typing import Any

MAX_FIELDS = 1 << 15
"""Most fields of a large message and of those in it; a chat of 4,096 turns has fewer. Numbers that
are packed, such as token ids, are one."""
LARGE_BYTES = 1 << 20
"""Least bytes of a message whose fields are counted: smaller ones are soon read in any case."""
VARINT, FIXED_64, BYTES, GROUP, END_GROUP, FIXED_32 = range(6)
"""Ways in which a field's value is written."""
SIZES = {FIXED_64: 8, FIXED_32: 4}


def has_few_fields(message: bytes, kind: Any) -> bool:
    """True if a message has so few fields that it may be read; `kind`: its descriptor.

    False, too, of large bytes that are no message.
    """
    if len(message) < LARGE_BYTES:
        return True
    try:
        return _fields(message, 0, len(message), kind, MAX_FIELDS) <= MAX_FIELDS
    except (IndexError, KeyError):
        return False


@functools.cache
def _messages(kind: Any) -> dict[int, Any]:
    """Return the descriptors of the messages in a message, by the number of their field."""
    fields = kind.fields_by_number.items()
    return {number: one.message_type for number, one in fields if one.message_type is not None}


def _fields(message: bytes, at: int, end: int, kind: Any, most: int) -> int:
    """Return the fields of a message between two places and of those in it, or `most` and more."""
    inner, found, groups = _messages(kind), 0, 0
    while at < end and found <= most:
        found += 1
        tag, at = _varint(message, at)
        way = tag & 7
        if way == VARINT:
            _, at = _varint(message, at)
        elif way == BYTES:
            size, at = _varint(message, at)
            if groups == 0 and (within := inner.get(tag >> 3)) is not None:
                found += _fields(message, at, min(at + size, end), within, most - found)
            at += size
        elif way in (GROUP, END_GROUP):  # nothing here has groups: what is in one is skipped
            groups += 1 if way == GROUP else -1
        else:
            at += SIZES[way]
    return found


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a number, and where the bytes after it begin; raises `IndexError`."""
    value = message[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for shift in range(7, 70, 7):  # ten bytes at most
        at += 1
        byte = message[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
    raise IndexError("a number goes on")
