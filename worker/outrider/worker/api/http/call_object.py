"""One call in an answer, `{"name": ..., "arguments": {...}}`, read as it comes.

Llama's `parameters` are `arguments` too, an object may stand in a string, and keys may come in any
order. Leaves to `tool_calls` where calls are, and whether an object is one.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

NAMES = ("name", "function")
ARGUMENTS = ("arguments", "parameters")
KEYS = (*NAMES, *ARGUMENTS, "id", "type")
OUTSIDE_STRINGS = frozenset(
    ' \t\r\n{}[]:,"+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'
)


@dataclass(slots=True)
class CallObject:
    """One such object, as it comes."""

    functions: Sequence[str] | None = None
    """Functions of which the object calls one: nothing else says that it is a call; None: any."""
    name: str | None = None
    """The function that is called; None: its name has not come."""
    has_arguments: bool = False
    """Whether the object that is the arguments has begun."""
    ended: bool = False
    """Whether its end has come, or what is of no such object."""
    _lacks_object: bool = False
    """Whether something else than an object stands for the arguments."""
    _outer: int = 0
    """Depth at which it ends: 1 where only the arguments are the model's own text."""
    _depth: int = 0
    """Objects and arrays that are open."""
    _in_string: bool = False
    _escaped: bool = False
    _key: str | None = None
    """Key of the value that is being read; None: a key is."""
    _in_arguments: bool = False
    _word: list[str] = field(default_factory=list)
    """Characters of the key or the simple value that is being read."""

    @classmethod
    def of(cls, name: str) -> "CallObject":
        """Return a call of which the arguments are to come, and nothing else."""
        call = cls(_outer=1)
        call.push(f'{{"name": {json.dumps(name)}, "arguments": ')
        return call

    @property
    def begun_name(self) -> str:
        """What has come of the name's JSON while it is being read."""
        return self._value if self._key in NAMES else ""

    @property
    def is_whole(self) -> bool:
        """Whether its own end has come."""
        return self.ended and self._depth <= self._outer and not self._lacks_object

    def push(self, text: str) -> tuple[int, str]:
        """Take a piece of the answer; return how many of its characters are the call's, and what
        they add to its arguments."""
        found: list[str] = []
        for count, character in enumerate(text):
            if not self._fits(character):
                self.ended = True
                return count, "".join(found)
            self._take(character, found)
            if self.ended:
                return count + 1, "".join(found)
        return len(text), "".join(found)

    @property
    def _value(self) -> str:
        """What has come of the key or the simple value that is being read."""
        return "".join(self._word).strip()

    def _fits(self, character: str) -> bool:
        """True if the call may go on so: a `<` in no string begins the tag that closes it."""
        if self._in_string:
            return True
        if not self._depth:
            return character in " \t\r\n{"
        return character != "<" if self._in_arguments else character in OUTSIDE_STRINGS

    def _take(self, character: str, found: list[str]) -> None:
        depth = self._depth
        self._follow(character)
        if max(depth, self._depth) > 1:  # in an object or array
            if self._in_arguments:
                self.has_arguments |= character == "{" and not self._value
                self._lacks_object |= not self.has_arguments
                found.append(character)
        elif self._in_string or character not in "{}[]:,":
            self._word.append(character)
        elif character == ":":
            self._begin_value()
        elif character in ",}]":
            self._end_value(found)
        self.ended |= self._lacks_object or self._depth <= self._outer < depth

    def _follow(self, character: str) -> None:
        """Follow strings, objects and arrays."""
        if self._in_string:
            self._in_string = self._escaped or character != '"'
            self._escaped = character == "\\" and not self._escaped
        elif character == '"':
            self._in_string = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1

    def _begin_value(self) -> None:
        self._key = str(_parsed(self._value))
        is_call = self.functions is None or (self.name is not None and self.has_arguments)
        self.ended |= not is_call and self._key not in KEYS
        self._in_arguments = self._key in ARGUMENTS and not self.has_arguments
        self._word.clear()

    def _end_value(self, found: list[str]) -> None:
        text, value = self._value, _parsed(self._value)
        if self._key in NAMES and self.name is None and isinstance(value, str):
            self.name = value
            self.ended |= self.functions is not None and value not in self.functions
        elif self._in_arguments and text:
            holds_object = isinstance(value, str) and isinstance(_parsed(value), dict)
            self.has_arguments |= holds_object
            self._lacks_object |= not self.has_arguments
            found.append(value if holds_object else text)
        self._key, self._in_arguments = None, False
        self._word.clear()


def is_json(text: str) -> bool:
    """True if a text is one value of JSON; NaN, which Python alone reads, is none."""
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(word: str) -> None:
    raise ValueError(word)


def _parsed(text: str) -> Any:
    return json.loads(text) if is_json(text) else None
