"""Prompts of requests as token ids: text, a chat, or ids.

A prompt that cannot fit is refused by its size alone, and tokenizing runs on a thread, so that a
prompt of any size delays no other request. Leaves the tokenizer to `text` and all other fields of
a request to `request`.
"""

import asyncio
import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from outrider.contract.inference import Message
from outrider.worker.api.fim import FimPrompt, FimTokens
from outrider.worker.api.template_options import TemplateOptions
from outrider.worker.api.text import DEFAULT_OPTIONS, Text
from outrider.worker.api.tool_schemas import ChatJson, parse_tool_calls, parse_tools
from outrider.worker.errors import InvalidField, TooLong
from outrider.worker.sampling.params import require

SHOWN_CHARACTERS = 32
"""Characters shown of a text that is refused."""


class ChatTurn(Protocol):
    """One turn of a chat as it came; a Protocol, so that chats are refused before they are copied.

    Fields are those of `ChatMessage` of inference.proto.
    """

    @property
    def role(self) -> str: ...
    @property
    def content(self) -> str: ...
    @property
    def tool_calls_json(self) -> str: ...
    @property
    def tool_call_id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def reasoning_content(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation, oldest turn first."""

    turns: Sequence[ChatTurn]
    tools_json: str = ""
    """Functions that the model may call, as in OpenAI's `tools`; empty: none."""
    options: TemplateOptions = DEFAULT_OPTIONS
    """How the chat template lays it out."""


Prompt = str | Chat | FimPrompt | Sequence[int]
"""Text, a chat, the texts around what is to be filled in, or token ids."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """Prompts of one model; every method raises `InvalidField`."""

    text: Text
    context: int
    """Most tokens of prompt and answer together."""
    vocabulary: int

    @property
    def fim(self) -> FimTokens | None:
        """The tokens to fill in the middle; None where model or tokenizer have none."""
        fim = self.text.fim
        return fim if fim and fim.largest < self.vocabulary else None

    async def encode(self, prompt: Prompt | None) -> list[int]:
        """Return the 1 to context - 1 token ids of a prompt."""
        if prompt is None:
            raise InvalidField("prompt", None, "set one of text, chat and tokens")
        if isinstance(prompt, str | Chat):
            ids = await self.tokenize(prompt)
            self._check_count(len(ids))
            return ids
        if isinstance(prompt, FimPrompt):
            return await self._encode_fim(prompt)
        require(len(prompt) > 0, "tokens.ids", [], "give at least one token id")
        self._check_count(len(prompt))
        self.check_ids("tokens.ids", prompt)
        return list(prompt)

    async def tokenize(self, prompt: str | Chat) -> list[int]:
        """Return the token ids of a text or a chat, however many."""
        if isinstance(prompt, str):
            self._check_bytes("text", [prompt])
            return await asyncio.to_thread(self.text.encode, prompt)
        self._check_turns(prompt.turns)
        self._check_bytes("chat.tools_json", [prompt.tools_json])
        variables = json.dumps(dict(prompt.options.variables))
        self._check_bytes("chat_template_kwargs", [variables])
        return await asyncio.to_thread(self._encode_chat, prompt)

    def _encode_chat(self, chat: Chat) -> list[int]:
        found = ChatJson()
        tools = parse_tools("chat.tools_json", chat.tools_json, found)
        messages = [_message(index, turn, found) for index, turn in enumerate(chat.turns)]
        laid_out = self.text.apply_chat_template(messages, tools, chat.options)
        self._check_bytes("chat.messages", [laid_out])  # a template may make a chat longer
        return self.text.encode_layout(laid_out)

    async def encode_prediction(self, prediction: str | Sequence[int]) -> Sequence[int]:
        """Return the token ids of an expected answer, however many; ids are taken as they are."""
        if not isinstance(prediction, str):
            return prediction
        limit = "it must have at least one character; leave it out where no answer is expected"
        require(prediction != "", "prediction", prediction, limit)
        self._check_bytes("prediction", [prediction])
        return await asyncio.to_thread(self.text.encode_prediction, prediction)

    async def encode_words(self, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """Return the different sequences of token ids that write some words."""
        if not words:
            return ()
        for word in words:
            require(word.strip() != "", "bad_words", word, "a word has more than blanks")
        self._check_bytes("bad_words", words)
        found = await asyncio.to_thread(self.text.encode_words, words)
        return tuple(dict.fromkeys(map(tuple, found)))

    async def _encode_fim(self, prompt: FimPrompt) -> list[int]:
        fim = self.fim
        if fim is None:
            limit = "this model has no tokens to fill in the middle; send a prompt alone"
            raise InvalidField(prompt.field, prompt.suffix[:SHOWN_CHARACTERS], limit)
        return await asyncio.to_thread(self.text.encode_fim, prompt, fim, self.context)

    def _check_turns(self, turns: Sequence[ChatTurn]) -> None:
        if len(turns) > self.context:
            limit = f"at most {self.context}, the context length"
            raise TooLong("chat.messages", f"{len(turns)} messages", limit, self.context)
        texts = (
            (
                *(turn.role, turn.content, turn.reasoning_content),
                *(turn.name, turn.tool_calls_json, turn.tool_call_id),
            )
            for turn in turns
        )
        self._check_bytes("chat.messages", itertools.chain.from_iterable(texts))

    def _check_bytes(self, field: str, texts: Iterable[str]) -> None:
        size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
        most = self.text.max_bytes(self.context)
        if size > most:
            limit = f"it must have at most {most} bytes of UTF-8: more can never fit the context"
            limit = f"{limit} length, {self.context} tokens"
            raise TooLong(field, f"{size} bytes", limit, self.context)

    def check_ids(self, field: str, ids: Sequence[int]) -> None:
        """Refuse ids that are not of this model, and more of them than its context holds."""
        if len(ids) > self.context:
            limit = f"at most {self.context}, the context length"
            raise TooLong(field, f"{len(ids)} ids", limit, self.context)
        unknown = np.flatnonzero(np.array(ids, np.int64) >= self.vocabulary)
        if len(unknown):
            at, limit = int(unknown[0]), f"token ids must be below {self.vocabulary}"
            raise InvalidField(f"{field}[{at}]", ids[at], limit)

    def _check_count(self, count: int) -> None:
        limit = f"it must have 1 to {self.context - 1} tokens: the context length is {self.context}"
        require(count > 0, "prompt", f"{count} tokens", limit)
        if count >= self.context:
            raise TooLong("prompt", f"{count} tokens", limit, self.context)


def _message(index: int, turn: ChatTurn, found: ChatJson) -> Message:
    field = f"chat.messages[{index}].tool_calls_json"
    calls = parse_tool_calls(field, turn.tool_calls_json, found)
    return Message(
        turn.role, turn.content, calls, turn.tool_call_id, turn.name, turn.reasoning_content
    )
