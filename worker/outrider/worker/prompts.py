"""Token ids of a request's prompt, whichever of its three forms it has.

What cannot fit is refused by its size alone, and tokenizing runs on a thread: a prompt of any size
keeps no other request waiting. Leaves the tokenizer to `text` and all other fields to
`inference_service`.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from outrider.protos.v1 import inference_pb2 as pb
from outrider.worker.errors import InvalidField
from outrider.worker.sampling import require
from outrider.worker.text import Message, Text


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
            return self._checked_ids(request.tokens.ids)
        ids = await self.tokenize(request)
        self._check_count(len(ids))
        return ids

    async def tokenize(self, request: pb.GenerateRequest | pb.TokenizeRequest) -> list[int]:
        """Ids of the text or else the chat, however many."""
        if request.HasField("text"):
            self._check_bytes("text", [request.text])
            return await asyncio.to_thread(self.text.encode, request.text)
        messages = self._checked_messages(request.chat.messages)
        return await asyncio.to_thread(self.text.encode_chat, messages)

    def _checked_messages(self, messages: Sequence[pb.ChatMessage]) -> list[Message]:
        require(
            len(messages) <= self.context,
            "chat.messages",
            f"{len(messages)} messages",
            f"at most {self.context}, the context length",
        )
        turns = [Message(m.role, m.content) for m in messages]
        self._check_bytes("chat.messages", (part for t in turns for part in (t.role, t.content)))
        return turns

    def _check_bytes(self, field: str, texts: Iterable[str]) -> None:
        size, most = sum(len(text.encode()) for text in texts), self.text.most_bytes(self.context)
        require(
            size <= most,
            field,
            f"{size} bytes",
            f"it must have at most {most} bytes of UTF-8: more can never fit the context length, "
            f"{self.context} tokens",
        )

    def _checked_ids(self, ids: Sequence[int]) -> list[int]:
        require(len(ids) > 0, "tokens.ids", [], "give at least one token id")
        self._check_count(len(ids))
        unknown = np.flatnonzero(np.array(ids, np.int64) >= self.vocabulary)
        if len(unknown):
            at, limit = int(unknown[0]), f"token ids must be below {self.vocabulary}"
            raise InvalidField(f"tokens.ids[{at}]", ids[at], limit)
        return list(ids)

    def _check_count(self, count: int) -> None:
        require(
            0 < count < self.context,
            "prompt",
            f"{count} tokens",
            f"it must have 1 to {self.context - 1} tokens",
        )
