"""Items of a response's output and the events of a stream, made of a chat's deltas as they come.

Items follow each other: what comes of another one ends the one before.
"""

import abc
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from outrider.worker.api.http.ids import new_id

Event = dict[str, Any]


@dataclass(slots=True)
class OutputItem(abc.ABC):
    """One item, while its text comes."""

    stem: ClassVar[str]
    """Type of the events of its text, without the last word."""

    index: int
    """Its place in the output."""
    id: str
    text: str = ""
    status: str = "in_progress"

    @property
    @abc.abstractmethod
    def shown(self) -> dict[str, Any]:
        """The item so far."""

    @property
    def _done(self) -> dict[str, Any]:
        """What is said of its text at the end."""
        return {"text": self.text}

    def begin(self) -> list[Event]:
        """Return what a stream shows before its text."""
        return [self._whole("added")]

    def push(self, text: str) -> list[Event]:
        """Take a piece of its text."""
        self.text += text
        return [self._of_text("delta", {"delta": text})]

    def end(self, status: str) -> list[Event]:
        """Return what a stream shows behind its text."""
        done = self._of_text("done", self._done)
        self.status = status
        return [done, self._whole("done")]

    def _of_text(self, word: str, more: dict[str, Any]) -> Event:
        at = {"item_id": self.id, "output_index": self.index}
        return {"type": f"{self.stem}.{word}", **at, **more}

    def _whole(self, word: str) -> Event:
        kind = f"response.output_item.{word}"
        return {"type": kind, "output_index": self.index, "item": self.shown}


@dataclass(slots=True)
class CallItem(OutputItem):
    """A call of a function."""

    stem = "response.function_call_arguments"
    call_id: str = ""
    name: str = ""

    @property
    def _done(self) -> dict[str, Any]:
        return {"name": self.name, "arguments": self.text}

    @property
    def shown(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "function_call",
            "status": self.status,
            "call_id": self.call_id,
            "name": self.name,
            "arguments": self.text,
        }


@dataclass(slots=True)
class PartItem(OutputItem):
    """An item whose text is the one part of its content."""

    @property
    @abc.abstractmethod
    def part(self) -> dict[str, Any]:
        """The part so far."""

    @property
    def content(self) -> list[dict[str, Any]]:
        """Its parts: none before its text comes."""
        return [self.part] if self.text or self.status != "in_progress" else []

    def begin(self) -> list[Event]:
        return [self._whole("added"), self._of_part("added")]

    def end(self, status: str) -> list[Event]:
        done, whole = OutputItem.end(self, status)
        return [done, self._of_part("done"), whole]

    def _of_text(self, word: str, more: dict[str, Any]) -> Event:
        return OutputItem._of_text(self, word, {"content_index": 0, **more})

    def _of_part(self, word: str) -> Event:
        at = {"item_id": self.id, "output_index": self.index, "content_index": 0}
        return {"type": f"response.content_part.{word}", **at, "part": self.part}


@dataclass(slots=True)
class MessageItem(PartItem):
    """Text of the answer."""

    stem = "response.output_text"

    @property
    def shown(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "message",
            "status": self.status,
            "role": "assistant",
            "content": self.content,
        }

    @property
    def part(self) -> dict[str, Any]:
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": []}

    def _of_text(self, word: str, more: dict[str, Any]) -> Event:
        return PartItem._of_text(self, word, {**more, "logprobs": []})


@dataclass(slots=True)
class ReasoningItem(PartItem):
    """Reasoning before the answer."""

    stem = "response.reasoning_text"

    @property
    def shown(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "reasoning",
            "status": self.status,
            "summary": [],
            "content": self.content,
        }

    @property
    def part(self) -> dict[str, Any]:
        return {"type": "reasoning_text", "text": self.text}


@dataclass(slots=True)
class OutputItems:
    """The items of one response."""

    items: list[OutputItem] = field(default_factory=list)

    @property
    def shown(self) -> list[dict[str, Any]]:
        """The output so far."""
        return [item.shown for item in self.items]

    @property
    def reasoning(self) -> str:
        """All reasoning."""
        return "".join(item.text for item in self.items if isinstance(item, ReasoningItem))

    def take(self, delta: Mapping[str, Any]) -> list[Event]:
        """Return the events of a chat's delta."""
        events = []
        if thought := delta.get("reasoning_content"):
            events += self._text(ReasoningItem, "rs_", thought)
        if text := delta.get("content"):
            events += self._text(MessageItem, "msg_", text)
        for call in delta.get("tool_calls", ()):
            events += self._call(call)
        return events

    def end(self, status: str) -> list[Event]:
        """Return the events behind the last delta; `status` is that of the last item."""
        begun = [] if self.items else self._begin(MessageItem(0, new_id("msg_")), "")
        return begun + self.close(status)

    def close(self, status: str) -> list[Event]:
        """Return the events that end the last item, if there is one."""
        return self.items[-1].end(status) if self.items else []

    def _text(self, kind: type[PartItem], prefix: str, text: str) -> list[Event]:
        if self.items and isinstance(self.items[-1], kind):
            return self.items[-1].push(text)
        return self._begin(kind(len(self.items), new_id(prefix)), text)

    def _call(self, call: Mapping[str, Any]) -> list[Event]:
        function = call["function"]
        if "id" not in call:
            return self.items[-1].push(function["arguments"])
        item = CallItem(len(self.items), new_id("fc_"), call_id=call["id"], name=function["name"])
        return self._begin(item, function["arguments"])

    def _begin(self, item: OutputItem, text: str) -> list[Event]:
        ended = self.close("completed")
        self.items.append(item)
        return ended + item.begin() + (item.push(text) if text else [])
