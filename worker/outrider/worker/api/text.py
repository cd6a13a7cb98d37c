"""Tokenizer, chat template, incremental detokenizer and stop strings of one model.

Tokenizer and chat template are `transformers`'; nothing here knows of requests or imports torch.
Ids become text through the tokens' own bytes and the standard library's UTF-8 decoder, not through
`tokenizers.DecodeStream`: that one buffers a run of invalid bytes without end.
"""

import codecs
import functools
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tokenizers import Tokenizer

from outrider.contract.inference import Message
from outrider.worker.api import chat_layout
from outrider.worker.api.call_tags import KNOWN_TAGS, PARTS_OF_CALLS, closing_tag, find_tags
from outrider.worker.api.chat_layout import TEMPLATE_ERRORS, Layout, find_layouts
from outrider.worker.api.control_tokens import BREAK, ControlTokens
from outrider.worker.api.fim import FimPrompt, FimTokens, given_ids
from outrider.worker.api.template_options import TemplateOptions
from outrider.worker.api.time_limit import time_limit
from outrider.worker.checkpoints.gguf_tokenizer import FIM_IDS
from outrider.worker.checkpoints.vocabulary import decoder_parts, token_bytes
from outrider.worker.errors import InvalidField, ModelError

ROLES = ("system", "user", "assistant", "tool")
"""Roles that every chat may use; others only where the template names them."""
DEFAULT_OPTIONS = TemplateOptions()
THOUGHT_TAGS = ("<think>", "</think>")
"""Tags around what a model thinks before it answers."""
TEMPLATE_SECONDS = 5.0
"""Most time of a chat's layout by a template, which takes a few milliseconds and may loop."""
SHRINKING = 4
"""How many times shorter a normalizer may make a text: NFKC turns U+1D7D8, four bytes, into "0"."""


def template_fields(message: Message) -> dict[str, Any]:
    """Return a turn of a chat as chat templates read it: without empty fields."""
    turn: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        turn["tool_calls"] = [dict(call) for call in message.tool_calls]
    optional = ("tool_call_id", "name", "reasoning_content")
    return turn | {key: value for key in optional if (value := getattr(message, key))}


@dataclass(frozen=True, slots=True)
class Text:
    """One model's tokenizer and chat template."""

    tokens: tuple[bytes, ...]
    """The bytes that each id adds to a text; empty for padding and special tokens."""
    longest: int
    """Bytes of the longest token, special ones included."""
    strips_space: bool
    """SentencePiece: the first token of a text or of a chat's answer loses the space before it."""
    control: ControlTokens
    """Tokens that chats are laid out with."""
    begin: tuple[int, ...]
    """Ids that the tokenizer puts before every text."""
    fim: FimTokens | None
    """None: the tokenizer has no tokens to fill in the middle."""
    call_tags: tuple[str, ...]
    """Tags that begin a call of a tool in an answer."""
    shown_tags: Mapping[int, bytes]
    """Special tokens that are text where tools may be called, as they are such tags."""
    thought_tags: Mapping[int, bytes]
    """Special tokens that are text in the answer to a chat of a model that thinks."""
    _layouts: tuple[Layout, ...]
    """Layouts of chats with calls and results that the chat template takes, the best first."""
    _tokenizer: Any
    """Tokenizer of transformers."""
    _backend: Tokenizer

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read tokenizer.json and its neighbours; raise `ModelError`."""
        from transformers import PreTrainedTokenizerFast

        try:
            tokenizer = PreTrainedTokenizerFast.from_pretrained(directory)
        except Exception as error:  # the binding raises nothing narrower for a broken file
            raise ModelError(f"{directory}: no usable tokenizer: {error}") from error
        backend: Tokenizer = tokenizer.backend_tokenizer
        backend.no_truncation()
        backend.no_padding()
        tokens = token_bytes(backend)
        longest = max(map(len, tokens), default=0)
        special = {at: t for at, t in backend.get_added_tokens_decoder().items() if t.special}
        given = given_ids(tokenizer.init_kwargs.get(FIM_IDS), len(tokens))
        fim = FimTokens.find(backend.token_to_id, given)
        for token in (*special, *(fim.ends if fim else ())):
            tokens[token] = b""
        control = ControlTokens.of(added.content for added in special.values())
        render = functools.partial(_render, tokenizer, control)
        tags = find_tags(render) if tokenizer.chat_template else KNOWN_TAGS
        shown = {*tags, *map(closing_tag, tags), *PARTS_OF_CALLS}

        def of_specials(texts: Collection[str]) -> dict[int, bytes]:
            contents = {at: one.content for at, one in special.items()}
            return {at: text.encode() for at, text in contents.items() if text in texts}

        return cls(
            tokens=tuple(tokens),
            longest=longest,
            strips_space=_strips_space(backend),
            control=control,
            begin=tuple(backend.encode("").ids),
            fim=fim,
            call_tags=tags,
            shown_tags=of_specials(shown),
            thought_tags=of_specials(THOUGHT_TAGS),
            _layouts=find_layouts(render) if tokenizer.chat_template else (),
            _tokenizer=tokenizer,
            _backend=backend,
        )

    @property
    def has_chat_template(self) -> bool:
        """True if `encode_chat` works."""
        return bool(self._tokenizer.chat_template)

    @property
    def thinks(self) -> bool:
        """Whether the chat template knows where thoughts begin and end."""
        return all(tag in str(self._tokenizer.chat_template) for tag in THOUGHT_TAGS)

    def max_bytes(self, tokens: int) -> int:
        """Return the bytes of UTF-8 above which no text has as few as `tokens` tokens."""
        return tokens * self.longest * (1 if self._backend.normalizer is None else SHRINKING)

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Return the ids of plain text; `special`: with those that the tokenizer adds by default.

        Raises `InvalidField`.
        """
        if not text:
            raise InvalidField("text", text, "it must have at least one character")
        return self._encode("text", [text], special)

    def encode_prediction(self, text: str) -> list[int]:
        """Return the ids of an expected answer, as a model writes it: without the ids that begin a
        text, and control tokens are text.

        Raises `InvalidField`.
        """
        return self._encode_plain("prediction", text)

    def encode_words(self, words: Iterable[str]) -> list[list[int]]:
        """Return the ids of words that an answer may hold, each as at the beginning of a text and
        behind a space.

        Raises `InvalidField`.
        """
        written = (f"{space}{word.lstrip()}" for word in words for space in ("", " "))
        return [self._encode_plain("bad_words", text) for text in written]

    def encode_fim(self, prompt: FimPrompt, fim: FimTokens, context: int) -> list[int]:
        """Return the ids of a prompt to fill in the middle, cut to what leaves room for the answer
        in a context of that many tokens; control tokens in it are text."""
        room = context - min(prompt.answer_tokens, context // 2) - len(self.begin)
        prompt = prompt.cut(self.max_bytes(context))  # more characters never fit
        return [*self.begin, *fim.lay_out(prompt, self._encode_code, room)]

    def _encode_code(self, text: str, begins: bool) -> list[int]:
        """Return the ids of code; SentencePiece puts a space before code that `begins`."""
        if begins or not self.strips_space:
            return self._encode_plain("text", text)
        mark = self._encode_plain("text", "\n")  # no merge goes over it
        return self._encode_plain("text", f"\n{text}")[len(mark) :]

    def _encode_plain(self, name: str, text: str) -> list[int]:
        """Return the ids of a text as a model writes it: control tokens are text."""
        return self._encode(name, self.control.broken(text).split(BREAK), special=False)

    def bytes_of(self, token: int) -> bytes:
        """Return what an id adds to a text: nothing where a model has more ids than its tokenizer,
        as embeddings that are padded have."""
        return self.tokens[token] if 0 <= token < len(self.tokens) else b""

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids; bytes that are no UTF-8 become U+FFFD, special tokens nothing."""
        data = b"".join(map(self.bytes_of, ids))
        data = data.removeprefix(b" ") if self.strips_space else data
        return data.decode(errors="replace")

    def detokenizer(
        self, begins: bool, of_chat: bool = False, calls_tools: bool = False
    ) -> "Detokenizer":
        """Return what makes the text of tokens, which `begins` with them or goes on with the space
        that they have; `of_chat`: tags of thoughts are part of it."""
        thoughts = self.thought_tags if of_chat and self.thinks else {}
        shown = {**thoughts, **(self.shown_tags if calls_tools else {})}
        return Detokenizer(self, begins and self.strips_space, shown)

    def encode_chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        options: TemplateOptions = DEFAULT_OPTIONS,
    ) -> list[int]:
        """Return the ids of a chat, laid out by the template, up to the assistant's answer.

        Raises `InvalidField`.
        """
        return self.encode_layout(self.apply_chat_template(messages, tools, options))

    def encode_layout(self, laid_out: str) -> list[int]:
        """Return the ids of a chat that is laid out; raise `InvalidField`."""
        return self._encode("chat.messages", laid_out.split(BREAK), special=False)

    def encode_question(self, text: str) -> list[int]:
        """Return the ids of a chat's first turn, or of plain text where there is no template."""
        if self.has_chat_template:
            return self.encode_chat([Message("user", text)])
        return self.encode(text)

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        options: TemplateOptions = DEFAULT_OPTIONS,
    ) -> str:
        """Return the text that the template makes of a chat and of the functions it may call.

        Control tokens that are not the template's own have a break.

        Raises `InvalidField`.
        """
        self._check(messages)
        until = time.monotonic() + TEMPLATE_SECONDS  # in all layouts
        render = functools.partial(
            _render, self._tokenizer, self.control, options=options, until=until
        )
        plain = not chat_layout.needs_layout(messages)
        refusals: list[Exception] = []
        for layout in (chat_layout.as_they_are,) if plain else self._layouts:
            try:
                return render(layout(chat_layout.with_names(messages)), tools)
            except TEMPLATE_ERRORS as error:
                refusals.append(error)
        limit = f"the model's chat template says: {refusals[0]}"
        raise InvalidField("chat.messages", f"{len(messages)} messages", limit) from refusals[0]

    def _encode(self, name: str, pieces: Sequence[str], special: bool) -> list[int]:
        for text in pieces:
            try:
                text.encode()
            except UnicodeEncodeError as error:
                limit = f"it must be valid Unicode: {error}"
                raise InvalidField(name, text[:32], limit) from error
        # Of the binding's methods only those for batches let other threads run meanwhile.
        found = self._backend.encode_batch_fast(list(pieces), add_special_tokens=special)
        return [token for encoding in found for token in encoding.ids]

    def _check(self, messages: Sequence[Message]) -> None:
        if not self.has_chat_template:
            raise InvalidField("chat", "a chat", "this model has no chat template: send text")
        if not messages:
            raise InvalidField("chat.messages", [], "at least one message is needed")
        template = str(self._tokenizer.chat_template)
        for index, message in enumerate(messages):
            named = any(f"{quote}{message.role}{quote}" in template for quote in "'\"")
            if message.role not in ROLES and not (message.role.isidentifier() and named):
                limit = f"the model's chat template knows {', '.join(ROLES)}"
                raise InvalidField(f"chat.messages[{index}].role", message.role[:32], limit)


@dataclass(slots=True)
class Detokenizer:
    """Turns ids into text as they come; gives whole characters only, and skips special tokens.

    What is buffered at the end is dropped: it is never a whole character.
    """

    text: Text
    strips_space: bool = False
    """The first token loses the space before it."""
    shown: Mapping[int, bytes] = field(default_factory=dict)
    """Special tokens that are not skipped."""
    _utf8: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )
    _begun: bool = False

    def push(self, ids: Iterable[int]) -> str:
        """Return the text that these ids complete; bytes that are no UTF-8 become U+FFFD."""
        data = b"".join(self.shown.get(token) or self.text.bytes_of(token) for token in ids)
        if data and not self._begun:
            self._begun = True
            data = data.removeprefix(b" ") if self.strips_space else data
        return self._utf8.decode(data)


@dataclass(slots=True)
class StopStrings:
    """Ends a text at the first of several strings, wherever tokens cut it.

    The first is the one complete first, so the result does not depend on the cuts.
    """

    stops: tuple[str, ...]
    keeps: bool = False
    """Whether the one that ends the text is shown."""
    word: str | None = None
    """The one that has ended the text."""
    _buffer: str = ""

    def push(self, text: str) -> tuple[str, bool]:
        """Return text that is safe to show, and True once a stop string has come.

        The end of the text is buffered while it may begin a stop string.
        """
        self._buffer += text
        found = ((self._buffer.find(stop), stop) for stop in self.stops)
        ends = [(at + len(stop), -len(stop), stop) for at, stop in found if at >= 0]
        if ends:
            end, length, self.word = min(ends)
            return self._take(end if self.keeps else end + length), True
        longest = max((len(stop) for stop in self.stops), default=1)
        for start in range(max(0, len(self._buffer) - longest + 1), len(self._buffer)):
            if any(stop.startswith(self._buffer[start:]) for stop in self.stops):
                return self._take(start), False
        return self._take(len(self._buffer)), False

    def finish(self) -> str:
        """Return all that is left to show at the end of the text."""
        return self._buffer

    def _take(self, count: int) -> str:
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken


def beginning_of(tag: str, text: str) -> int:
    """Return the count of characters at the end of `text` that may begin `tag`."""
    most = min(len(tag) - 1, len(text))
    return next((n for n in range(most, 0, -1) if text.endswith(tag[:n])), 0)


def _render(
    tokenizer: Any,
    control: ControlTokens,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]] = (),
    options: TemplateOptions = DEFAULT_OPTIONS,
    until: float | None = None,
) -> str:
    """Return what a tokenizer's chat template makes of a chat; `until`: the clock's time by which
    it must have."""
    turns = [control.broken(template_fields(message)) for message in messages]
    functions, arguments = list(control.broken(tools)) or None, options.arguments(control)
    with time_limit(TEMPLATE_SECONDS if until is None else until - time.monotonic()):
        laid_out: str = tokenizer.apply_chat_template(
            turns, tools=functions, tokenize=False, **arguments
        )
    return laid_out


def _strips_space(backend: Tokenizer) -> bool:
    parts = decoder_parts(backend)
    return any(
        (part.get("type") == "Strip" and part.get("start", 0) > 0)
        or (part.get("type") == "Metaspace" and part.get("prepend_scheme") != "never")
        for part in parts
    )
