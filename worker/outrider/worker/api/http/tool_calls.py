"""Tool calls in an answer's text, found as it comes.

A call is `{"name": ..., "arguments": {...}}`, or a list of such, behind one of the tags that the
model's chat template writes (`call_tags`); without a tag, or fenced as code, where it begins the
answer or follows a call, and names a function that may be called. Newer Mistral models write
`[TOOL_CALLS]name[ARGS]` before the arguments. Text that looks like a call and is none stays text,
but for blanks that only calls follow.
"""

import enum
import json
import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from outrider.worker.api.call_tags import KNOWN_TAGS, closing_tag
from outrider.worker.api.http.call_object import CallObject, is_json
from outrider.worker.api.http.ids import new_id
from outrider.worker.api.text import beginning_of

SEPARATORS = " \t\r\n;,"
"""Characters that may stand between two calls; blanks alone may stand before the first."""
HEAD = re.compile(
    r"\s*(?P<list>\[\s*)?(?=\{)"
    r"|\s*(?P<name>[\w.\-]+)(\[CALL_ID\][\w\-]+)?(\[ARGS\])?\s*(?=\{)"
)
"""Text between a tag and the object behind it."""
BEGUN_HEAD = re.compile(r"\s*(\[\s*)?\Z|\s*[\w.\-]+(\[[A-Z_]*(\][\w\-]*)?)*\s*\Z")
FENCE = re.compile(r"```(json)?\s*(?=[{\[])")
"""What small models write around a call in place of a tag."""
BEGUN_FENCE = re.compile(r"(`{1,2}|```(j|js|jso|json)?\s*)\Z")
FENCE_END = "```"
NEXT_IN_LIST = re.compile(r"\s*,\s*(?=\{)")
BEGUN_NEXT = re.compile(r"\s*(,\s*)?\Z")

Found = TypeVar("Found")
Reader: TypeAlias = Generator[None, None, Found]
"""Reader of an answer: it stops where it needs more of it, and returns what it has found."""


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
    """Functions that may be called; if forced, one of them has to be."""
    tags: Sequence[str] = KNOWN_TAGS
    """Tags that begin a call."""
    calls: list[dict[str, Any]] = field(default_factory=list)
    """In OpenAI's shape."""
    _buffer: str = ""
    """Text that is or may become part of a call."""
    _held: str = ""
    """Blanks that are shown if more text comes, or if there is no call."""
    _deltas: list[dict[str, Any]] = field(default_factory=list)
    """What a stream shows, in the order in which it was written, and has not been returned."""
    _reader: Reader[None] = field(init=False)
    _object: CallObject | None = None
    """The call whose arguments are being read."""
    _is_kept: bool = True
    """Whether the last call that was read is one of the calls."""
    _is_broken: bool = False
    """Whether a call's arguments are no JSON."""
    _begins: bool = True
    """Whether a call without a tag may come: only blanks have, since the answer began or a call
    ended."""
    _closes: bool = False
    """Whether the buffer holds but what may close the last call."""

    def __post_init__(self) -> None:
        self._reader = self._read_forced() if self.calling is Calling.FORCED else self._read()

    @property
    def complete(self) -> bool:
        """Whether there is a call, and each is whole."""
        return bool(self.calls) and self._object is None and not self._is_broken

    def push(self, text: str) -> list[dict[str, Any]]:
        """Take a piece of the answer; return what a stream shows of it, in the order in which it
        was written: text that certainly belongs to no call, each call without arguments, then
        pieces of them."""
        if self.calling is Calling.NONE:
            return [{"content": text}] if text else []
        self._buffer += text
        next(self._reader)
        return self._take_deltas()

    def finish(self) -> list[dict[str, Any]]:
        """Return what is left at the end; a call may lack its closing tag."""
        only_blanks = self.calls and self._begins and not self._buffer.strip(SEPARATORS)
        if not (self.calling is Calling.FORCED or self._closes or only_blanks):
            self._show(len(self._buffer))
        if not self.calls:
            self._add_text(self._held)
        return self._take_deltas()

    def _read_forced(self) -> Reader[None]:
        yield from self._read_call(CallObject(), 0, "")
        while True:
            self._buffer = ""
            yield

    def _read(self) -> Reader[None]:
        while True:
            tag = yield from self._read_text()
            yield from self._read_calls(tag)

    def _read_text(self) -> Reader[str]:
        """Show text up to what may be a call; return its tag, or nothing where it has none."""
        pattern = re.compile("|".join(map(re.escape, self.tags)))
        while True:
            found = pattern.search(self._buffer)
            begun = max(beginning_of(tag, self._buffer) for tag in self.tags)
            end = found.start() if found else len(self._buffer) - begun
            at = self._blanks()
            first = self._buffer[at:end][:1] if self._begins else "text"
            if self._begins and BEGUN_FENCE.match(self._buffer, at):
                first = ""
            if first in ("{", "["):
                return ""
            if first:
                self._show(end)
            if found:
                return found[0]
            yield

    def _read_calls(self, tag: str) -> Reader[None]:
        """Read what may be a call, or a list of them, and what closes it."""
        at = self._buffer.index(tag) + len(tag) if tag else self._blanks()
        is_fenced = not tag and FENCE_END in self._buffer[:at]
        while not (head := HEAD.match(self._buffer, at)) and BEGUN_HEAD.match(self._buffer, at):
            yield
        name = head and head["name"]
        if head is None or (name and name not in self.functions):
            self._show(at)
            return
        functions = None if tag else self.functions
        call = CallObject.of(name) if name else CallObject(functions)
        is_call = yield from self._read_call(call, head.end(), tag)
        while is_call and head["list"] and (at := (yield from self._read_comma())):
            is_call = yield from self._read_call(CallObject(functions), at, tag)
        if is_call:
            ends = [FENCE_END] if is_fenced else map(closing_tag, self.tags)
            yield from self._drop((*("]" if head["list"] else ""), *ends))

    def _read_call(self, call: CallObject, at: int, tag: str) -> Reader[bool]:
        """Read an object of the buffer; return False if it is no call, and show it as text."""
        arguments = ""
        while True:
            count, found = call.push(self._buffer[at:])
            at, arguments = at + count, arguments + found
            if self._object is None and (name := self._name_of(call, tag)) is not None:
                self._open(call, name)
            if self._object is not None:
                self._add_arguments(arguments)
                self._buffer, at, arguments = self._buffer[at:], 0, ""
            if call.ended:
                break
            yield
        if self._object is None:
            self._show(at)
            return False
        self._close(call)
        return True

    def _name_of(self, call: CallObject, tag: str) -> str | None:
        """Return the function that a call is certainly of."""
        if self.calling is Calling.FORCED:
            return _only_name(call, self.functions)
        if tag:
            return call.name if call.has_arguments or call.is_whole else None
        return call.name if call.name in self.functions and call.has_arguments else None

    def _read_comma(self) -> Reader[int]:
        """Return where the next object of a list begins; 0: none comes next."""
        while (found := NEXT_IN_LIST.match(self._buffer)) is None:
            if not BEGUN_NEXT.match(self._buffer):
                return 0
            yield
        return found.end()

    def _drop(self, words: Sequence[str]) -> Reader[None]:
        """Drop those words that come next, in their order, and the blanks before each."""
        self._closes = True
        for word in words:
            while word.startswith(rest := self._buffer.lstrip()) and rest != word:
                yield
            if rest.startswith(word):
                self._buffer = rest[len(word) :]
        self._closes = False

    def _open(self, call: CallObject, name: str) -> None:
        self._object = call
        self._is_kept = not (self.calling is Calling.ONE and self.calls)
        if self._is_kept:
            new = openai_call(name)
            self._add({"index": len(self.calls), **openai_call(name, new["id"])})
            self.calls.append(new)

    def _add_arguments(self, text: str) -> None:
        if text and self._is_kept:
            self.calls[-1]["function"]["arguments"] += text
            self._add({"index": len(self.calls) - 1, "function": {"arguments": text}})

    def _add(self, call: dict[str, Any]) -> None:
        self._deltas.append({"tool_calls": [call]})

    def _close(self, call: CallObject) -> None:
        if not call.has_arguments and call.is_whole:
            self._add_arguments("{}")
        if self._is_kept:
            self._is_broken |= not is_json(self.calls[-1]["function"]["arguments"])
        self._object, self._begins = None, True

    def _blanks(self) -> int:
        """Return the count of characters in the buffer before what may be a call."""
        blanks = SEPARATORS if self.calls else None
        count = len(self._buffer) - len(self._buffer.lstrip(blanks))
        fence = FENCE.match(self._buffer, count)
        return fence.end() if fence else count

    def _show(self, count: int) -> None:
        text = self._held + self._buffer[:count]
        shown = text.rstrip()
        self._add_text(shown)
        self._held = text[len(shown) :]
        self._buffer, self._begins = self._buffer[count:], False

    def _add_text(self, text: str) -> None:
        if text and self._deltas and "content" in self._deltas[-1]:
            self._deltas[-1]["content"] += text
        elif text:
            self._deltas.append({"content": text})

    def _take_deltas(self) -> list[dict[str, Any]]:
        taken, self._deltas = self._deltas, []
        return taken


def openai_call(name: str, id_: str = "") -> dict[str, Any]:
    """Return a call in OpenAI's shape, without arguments; by default with an id of its own."""
    return {
        "id": id_ or new_id("call_"),
        "type": "function",
        "function": {"name": name, "arguments": ""},
    }


def _only_name(call: CallObject, functions: Sequence[str]) -> str | None:
    """Return the function that a call of one of several must be of; None: it may be any."""
    if call.name is not None or len(functions) == 1:
        return call.name or functions[0]
    begun = call.begun_name
    fit = [name for name in functions if begun and _is_begun(name, begun)]
    return fit[0] if len(fit) == 1 else None


def _is_begun(name: str, begun: str) -> bool:
    """True if a name's JSON, however its characters are escaped, may begin so."""
    return any(json.dumps(name, ensure_ascii=way).startswith(begun) for way in (True, False))
