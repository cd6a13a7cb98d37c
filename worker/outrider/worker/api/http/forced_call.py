"""The call that an answer has to be: `{"name": ..., "arguments": {...}}` and nothing else.

Its function is known once one alone may be meant, its arguments as they come: an answer that is cut
off is the call with the arguments so far.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

BLANKS = " \t\r\n"
HEAD = re.compile(
    r'\s*\{\s*"name"\s*:\s*(?P<name>"(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\S)'
)
BEGUN = re.compile(r'\s*\{\s*"name"\s*:\s*(?P<begun>"(?:[^"\\]|\\.)*)')


@dataclass(slots=True)
class ForcedCall:
    """One such answer, as it comes."""

    functions: Sequence[str]
    """Names of those that may be called."""
    complete: bool = False
    """Whether its end has come."""
    _buffer: str = ""
    """Text up to the arguments, then blanks that may lie behind them."""
    _in_arguments: bool = False
    _depth: int = 0
    """Objects and arrays that are open in the arguments."""
    _in_string: bool = False
    _escaped: bool = False

    @property
    def name(self) -> str | None:
        """The function that is called; None: it may still be any of several."""
        if len(self.functions) == 1 or self._in_arguments:
            return self.functions[0]
        begun = BEGUN.match(self._buffer)
        fit = [name for name in self.functions if begun and _is_begun(name, begun["begun"])]
        return fit[0] if len(fit) == 1 else None

    def push(self, text: str) -> str:
        """Take a piece of the answer; return what it adds to the arguments."""
        if not self._in_arguments:
            self._buffer += text
            if (head := HEAD.match(self._buffer)) is None:
                return ""
            self.functions, self._in_arguments = [json.loads(head["name"])], True
            text, self._buffer = self._buffer[head.end() :], ""
        return self._arguments(text)

    def _arguments(self, text: str) -> str:
        """Return what of a text belongs to the arguments: all up to the end of the call."""
        found = ""
        for character in text:
            if self._ends(character):
                self.complete = True
                break
            if not self._depth and not self._in_string and character in BLANKS:
                self._buffer += character
            else:
                found, self._buffer = found + self._buffer + character, ""
        return found

    def _ends(self, character: str) -> bool:
        """Follow the arguments' JSON; True for the brace that closes the call around them."""
        if self._in_string:
            self._in_string = self._escaped or character != '"'
            self._escaped = character == "\\" and not self._escaped
        elif character == '"':
            self._in_string = True
        elif character in "[{":
            self._depth += 1
        elif character in "]}":
            self._depth -= 1
        return self._depth < 0


def _is_begun(name: str, begun: str) -> bool:
    """True if a name's JSON, however its characters are escaped, may begin so."""
    return any(json.dumps(name, ensure_ascii=way).startswith(begun) for way in (True, False))
