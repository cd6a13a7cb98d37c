"""Tool calls in an answer's text, found as it comes.

Free answers hold them as `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, the format of
Hermes and Qwen models; forced ones are such an object and nothing else. Text that looks like a call
and is none stays text.
"""

import enum
import json
import secrets
from dataclasses import dataclass, field
from typing import Any

OPEN, CLOSE = "<tool_call>", "</tool_call>"
ID_BYTES = 12


class Calling(enum.Enum):
    """Number of calls that an answer may hold."""

    NONE = "none"
    ONE = "one"
    MANY = "many"
    FORCED = "forced"
    """The answer is a call and nothing else."""


@dataclass(slots=True)
class ToolCalls:
    """Splits one answer into text and calls."""

    calling: Calling
    calls: list[dict[str, Any]] = field(default_factory=list)
    """In OpenAI's shape."""
    _buffer: str = ""
    """Text that is or may become part of a call."""

    def push(self, text: str) -> str:
        """Take a piece of the answer; return the text that certainly belongs to no call."""
        if self.calling is Calling.NONE:
            return text
        self._buffer += text
        return "" if self.calling is Calling.FORCED else self._split()

    def finish(self) -> str:
        """Return the text that is left at the end; a call may lack its closing tag."""
        rest, self._buffer = self._buffer, ""
        if self.calling is Calling.NONE or self._take(rest.removeprefix(OPEN)):
            return ""
        return rest

    def _split(self) -> str:
        shown = ""
        while True:
            before, opened, inside = self._buffer.partition(OPEN)
            if not opened:
                keep = _beginning_of(OPEN, self._buffer)
                cut = len(self._buffer) - keep
                shown, self._buffer = shown + self._buffer[:cut], self._buffer[cut:]
                return shown
            shown, self._buffer = shown + before, opened + inside
            call, closed, after = inside.partition(CLOSE)
            if not closed:
                return shown
            self._buffer = after
            if not self._take(call):
                shown += opened + call + closed

    def _take(self, text: str) -> bool:
        """Take one call; False if the text is none."""
        call = parse_call(text)
        if call is None:
            return False
        if self.calling is not Calling.ONE or not self.calls:
            self.calls.append(call)
        return True


def parse_call(text: str) -> dict[str, Any] | None:
    """Parse {"name": ..., "arguments": {...}} to a call in OpenAI's shape; None if it is none."""
    try:
        call = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    arguments = call.get("arguments", {})
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {
        "id": f"call_{secrets.token_hex(ID_BYTES)}",
        "type": "function",
        "function": {"name": call["name"], "arguments": arguments},
    }


def _beginning_of(tag: str, text: str) -> int:
    """Return the count of characters at the end of `text` that may begin `tag`."""
    most = min(len(tag) - 1, len(text))
    return next((n for n in range(most, 0, -1) if text.endswith(tag[:n])), 0)
