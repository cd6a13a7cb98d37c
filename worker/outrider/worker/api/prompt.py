"""Token ids of a request's prompt, whichever of its three forms it has.

What cannot fit is refused by its size alone, and tokenizing runs on a thread: a prompt of any size
keeps no other request waiting. Leaves the tokenizer to `text` and all other fields to `submission`.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from outrider.protos.v1 import inference_pb2 as pb
from outrider.worker.api.text import Message, Text
from outrider.worker.api.tool_schemas import parse_tool_calls, parse_tools
from outrider.worker.errors import InvalidField, TooLong
from outrider.worker.sampling.params import require


@dataclass(frozen=True, slots=True)
class Prompts:
    """Prompts of one model; every method raises `InvalidField`."""

    text: Text
    context: int
    """Most tokens of prompt and answer together."""
    vocabulary: int

    async def encode(self, request: pb.GenerateRequest) -> list[int]:
        """1 to context - 1 token ids."""
        which = request.WhichOneof("prompt")
        require(which is not None, "prompt", which, "set one of text, chat and tokens")
        if which == "tokens":
            require(len(request.tokens.ids) > 0, "tokens.ids", [], "give at least one token id")
            self._check_count(len(request.tokens.ids))
            self.check_ids("tokens.ids", request.tokens.ids)
            return list(request.tokens.ids)
        ids = await self.tokenize(request)
        self._check_count(len(ids))
        return ids

    async def tokenize(self, request: pb.GenerateRequest | pb.TokenizeRequest) -> list[int]:
        """Ids of the text or else the chat, however many."""
        if request.HasField("text"):
            self._check_bytes("text", [request.text])
            return await asyncio.to_thread(self.text.encode, request.text)
        self._check_bytes("chat.tools_json", [request.chat.tools_json])
        messages = self._checked_messages(request.chat.messages)
        tools = parse_tools("chat.tools_json", request.chat.tools_json)
        return await asyncio.to_thread(self.text.encode_chat, messages, tools)

    def _checked_messages(self, messages: Sequence[pb.ChatMessage]) -> list[Message]:
        require(
            len(messages) <= self.context,
            "chat.messages",
            f"{len(messages)} messages",
            f"at most {self.context}, the context length",
        )
        self._check_bytes("chat.messages", (part for m in messages for part in _texts(m)))
        return [_message(index, message) for index, message in enumerate(messages)]

    def _check_bytes(self, field: str, texts: Iterable[str]) -> None:
        size, most = sum(len(text.encode()) for text in texts), self.text.most_bytes(self.context)
        if size > most:
            limit = f"it must have at most {most} bytes of UTF-8: more can never fit the context"
            raise TooLong(field, f"{size} bytes", f"{limit} length, {self.context} tokens")

    def check_ids(self, field: str, ids: Sequence[int]) -> None:
        """Refuses ids that are not of this model, and more of them than its context holds."""
        if len(ids) > self.context:
            raise TooLong(field, f"{len(ids)} ids", f"at most {self.context}, the context length")
        unknown = np.flatnonzero(np.array(ids, np.int64) >= self.vocabulary)
        if len(unknown):
            at, limit = int(unknown[0]), f"token ids must be below {self.vocabulary}"
            raise InvalidField(f"{field}[{at}]", ids[at], limit)

    def _check_count(self, count: int) -> None:
        limit = f"it must have 1 to {self.context - 1} tokens: the context length is {self.context}"
        require(count > 0, "prompt", f"{count} tokens", limit)
        if count >= self.context:
            raise TooLong("prompt", f"{count} tokens", limit)


def _texts(message: pb.ChatMessage) -> tuple[str, ...]:
    """Everything of a turn that has a length."""
    calls = (message.tool_calls_json, message.tool_call_id)
    return (message.role, message.content, message.name, *calls)


def _message(index: int, message: pb.ChatMessage) -> Message:
    calls = parse_tool_calls(f"chat.messages[{index}].tool_calls_json", message.tool_calls_json)
    return Message(message.role, message.content, calls, message.tool_call_id, message.name)
