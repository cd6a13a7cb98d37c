"""Tool calls in an answer's text, found as it comes.

Free answers hold them as `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, the format of
Hermes and Qwen models; forced ones are such an object and nothing else (`forced_call`). Text that
looks like a call and is none stays text.
"""

import enum
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from outrider.worker.api.http.forced_call import ForcedCall

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
    functions: Sequence[str] = ()
    """Those of which one has to be called."""
    calls: list[dict[str, Any]] = field(default_factory=list)
    """In OpenAI's shape."""
    _buffer: str = ""
    """Text that is or may become part of a call."""
    _deltas: list[dict[str, Any]] = field(default_factory=list)
    _forced: ForcedCall = field(init=False)

    def __post_init__(self) -> None:
        self._forced = ForcedCall(self.functions)

    @property
    def complete(self) -> bool:
        """Whether there is a call, and it is whole."""
        return self._forced.complete if self.calling is Calling.FORCED else bool(self.calls)

    def take_deltas(self) -> list[dict[str, Any]]:
        """Return what a stream shows of the calls that have come since it was last called."""
        taken, self._deltas = self._deltas, []
        return taken

    def push(self, text: str) -> str:
        """Take a piece of the answer; return the text that certainly belongs to no call."""
        if self.calling is Calling.NONE:
            return text
        if self.calling is Calling.FORCED:
            self._force(text)
            return ""
        self._buffer += text
        return self._split()

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
            self._add(call)
        return True

    def _add(self, call: dict[str, Any]) -> None:
        function = dict(call["function"])  # to which arguments may be added
        self._deltas.append({"index": len(self.calls), **call, "function": function})
        self.calls.append(call)

    def _force(self, text: str) -> None:
        """Take a piece of an answer that is a call, and of its arguments what has come."""
        arguments = self._forced.push(text)
        if not self.calls and (name := self._forced.name) is not None:
            self._add(openai_call(name, ""))
        if not arguments:
            return
        self.calls[0]["function"]["arguments"] += arguments
        if not self._deltas:
            self._deltas = [{"index": 0, "function": {"arguments": ""}}]
        self._deltas[0]["function"]["arguments"] += arguments


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
    return openai_call(call["name"], arguments)


def openai_call(name: str, arguments: str) -> dict[str, Any]:
    """Return a call in OpenAI's shape, with an id of its own."""
    return {
        "id": f"call_{secrets.token_hex(ID_BYTES)}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _beginning_of(tag: str, text: str) -> int:
    """Return the count of characters at the end of `text` that may begin `tag`."""
    most = min(len(tag) - 1, len(text))
    return next((n for n in range(most, 0, -1) if text.endswith(tag[:n])), 0)
