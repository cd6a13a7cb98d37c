"""Chats as a model writes them, many at a time, and its features on the way.

Continuous batching over the worker's engine. A chat follows from its number alone: what it begins
with, its noise, and, since rows of a pass do not change each other, its text, whatever is written
beside it. So a run that was killed goes on with the chats that it would have written.
"""

import dataclasses
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.distil.chat_layout import ChatLayout
from outrider.distil.engine import Engine
from outrider.distil.errors import BadRecipe
from outrider.distil.prompts import Opening, PromptSource
from outrider.distil.shards import ANSWERED, ASKED, GIVEN, Chat
from outrider.worker.kv.block_pool import BlockTable
from outrider.worker.model.rows import Rows, joined, prompt_rows

LONGEST = 384
"""Tokens of a chat."""
SHORTEST = 16
"""Tokens of an answer that a prompt leaves room for."""
LONGEST_QUESTION = 110
LONGEST_OPENING = 32
"""Tokens of a question that are given where the target writes the rest."""
LONGEST_PERIOD = 40
GREEDY = 0.5
"""Share of answers without sampling."""
TEMPERATURES = (0.6, 0.8, 1.0)
"""Temperatures of the answers with sampling; questions have 1."""
TOP_K, TOP_P = 64, 0.97
NO_TOKENS = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class Beginning:
    """How a chat begins, and how it is written on."""

    tokens: list[int]
    asking: bool = False
    """The user's turn is written, too."""
    temperature: float = 0.0
    """Temperature of the answer."""
    longest: int = LONGEST
    """Tokens of the chat."""
    writer: int = ANSWERED


@dataclass(frozen=True, slots=True)
class Chats:
    """Chats that a target writes: questions of a source, answered with and without sampling."""

    source: PromptSource
    layout: ChatLayout
    seed: int
    held_out: int
    """Chats, the first, that are answered without sampling."""
    greedy: float = GREEDY
    """Share of answers without sampling among the others."""

    def __call__(self, number: int) -> Beginning:
        """Return the beginning of a chat; a prompt that is too long loses its end."""
        question = self.source.question(number)
        rng = random.Random(f"{self.seed} answer {number}")
        greedy = rng.random() < self.greedy or number < self.held_out
        temperature = 0.0 if greedy else rng.choice(TEMPERATURES)
        if question.opening is Opening.ALL:
            tokens = self.layout.asked_within(question.text, LONGEST - SHORTEST)
            return Beginning(tokens, False, temperature)
        return Beginning(self.layout.begun(question.text), True, temperature)


def check_layout(layout: ChatLayout) -> None:
    """Raise `BadRecipe` if a chat has no room for a question and an answer."""
    room = LONGEST - LONGEST_OPENING - LONGEST_QUESTION - SHORTEST
    if layout.length > room:
        raise BadRecipe(
            f"the target's chat template puts {layout.length} tokens around a question; allowed: "
            f"{room}, for a chat has {LONGEST} at most"
        )


@dataclass(slots=True, eq=False)
class Slot:
    """One chat that is being written."""

    number: int
    block_table: BlockTable
    beginning: Beginning
    noise: np.random.Generator
    tokens: list[int]
    writers: list[int]
    asking: bool
    """The user's turn is being written still."""
    done: int = 0
    """Tokens whose row has run."""
    features: list[NDArray[np.float16]] = field(default_factory=list)
    """Features of rows that have run, by pass."""

    @property
    def waiting(self) -> int:
        """Tokens whose row has not run."""
        return len(self.tokens) - self.done

    @property
    def temperature(self) -> float:
        return 1.0 if self.asking else self.beginning.temperature

    def chat(self) -> Chat:
        """Return what was written, the last token without its row."""
        assert self.waiting == 1, "every other token has its features"
        return Chat(
            np.array(self.tokens, np.int32),
            np.array(self.writers, np.int8),
            np.concatenate(self.features),
        )


class Writer:
    """Writes chats with one model, `slots` at a time."""

    def __init__(
        self,
        engine: Engine,
        layout: ChatLayout,
        beginning: Callable[[int], Beginning],
        slots: int,
        seed: int = 0,
    ) -> None:
        """`beginning`: of the chat of a number. The engine has room for `slots` sequences."""
        self._engine, self._layout, self._beginning = engine, layout, beginning
        self._slots, self._seed = slots, seed
        ids = engine.config.output_ids
        self._ids = None if ids is None else np.array(ids, np.int64)

    def write(self, first: int = 0, count: int | None = None) -> Iterator[Chat]:
        """Yield chats in the order of their numbers, from `first` on: `count`, or without end."""
        numbers = itertools.count(first) if count is None else iter(range(first, first + count))
        early: dict[int, Chat] = {}
        due = first
        for number, chat in self._finished(numbers):
            early[number] = chat
            while due in early:
                yield early.pop(due)
                due += 1

    @torch.no_grad()
    def _finished(self, numbers: Iterator[int]) -> Iterator[tuple[int, Chat]]:
        """Yield chats and their numbers as they end."""
        first = itertools.islice(numbers, self._slots)
        slots = [self._begin(number, self._room()) for number in first]
        while slots:
            for slot in self._advance(slots):
                yield slot.number, slot.chat()
                slots.remove(slot)
                following = next(numbers, None)
                if following is None:
                    self._engine.kv_cache.free(slot.block_table)
                else:
                    slots.append(self._begin(following, slot.block_table))

    def _advance(self, slots: list[Slot]) -> list[Slot]:
        """Run one pass; return the slots whose chats have ended."""
        parts = self._parts(slots)
        logits, features = self._engine.run(joined([rows for _, rows in parts]))
        kept = features.astype(np.float16)
        ends = np.cumsum([rows.count for _, rows in parts])
        for (slot, rows), end in zip(parts, ends.tolist(), strict=True):
            slot.features.append(kept[end - rows.count : end])
            slot.done += rows.count
        writing = [(slot, end - 1) for (slot, _), end in zip(parts, ends, strict=True)]
        writing = [(slot, row) for slot, row in writing if not slot.waiting]
        tokens = self._choose(logits[[row for _, row in writing]], [slot for slot, _ in writing])
        pairs = zip([slot for slot, _ in writing], tokens, strict=True)
        return [slot for slot, token in pairs if self._append(slot, token)]

    def _parts(self, slots: Sequence[Slot]) -> list[tuple[Slot, Rows]]:
        """Return rows of every slot as far as a pass has room; decoding ones first."""
        parts, free = [], self._engine.row_capacity
        for slot in sorted(slots, key=lambda slot: slot.waiting):
            count = min(slot.waiting, free)
            if count:
                tokens = np.array(slot.tokens[slot.done : slot.done + count], np.int32)
                rows = prompt_rows(tokens, slot.done, slot.block_table, wants_output=True)
                parts.append((slot, all_wanted(rows)))
                free -= count
        return parts

    def _choose(self, logits: NDArray[np.float32], slots: Sequence[Slot]) -> list[int]:
        """Return one token by slot; `logits` [slots, outputs]."""
        if not slots:
            return []
        best = torch.from_numpy(logits).topk(min(TOP_K, logits.shape[1]))
        temperature = torch.tensor([slot.temperature for slot in slots])
        shares = (best.values / temperature.clamp_min(1e-3)[:, None]).softmax(-1)
        shares[shares.cumsum(-1) - shares > TOP_P] = 0
        reached = shares.cumsum(-1)
        drawn = torch.tensor([slot.noise.random() for slot in slots])[:, None] * reached[:, -1:]
        places = (reached <= drawn).sum(-1).clamp_max(reached.shape[1] - 1)
        places[temperature == 0] = 0
        chosen = best.indices.gather(1, places[:, None])[:, 0].numpy()
        tokens: list[int] = (chosen if self._ids is None else self._ids[chosen]).tolist()
        return tokens

    def _append(self, slot: Slot, token: int) -> bool:
        """Add what the model said; return True if that ends the chat."""
        ends = token in self._layout.ends
        longest = slot.beginning.longest
        if slot.asking and (ends or slot.writers.count(ASKED) >= LONGEST_QUESTION):
            slot.tokens += self._layout.after
            slot.writers += [GIVEN] * len(self._layout.after)
            slot.asking = False
            return len(slot.tokens) >= longest
        slot.tokens.append(token)
        slot.writers.append(ASKED if slot.asking else slot.beginning.writer)
        due = len(slot.tokens) % 8 == 0
        looping = due and not slot.asking and repeats_itself(slot.tokens)
        return len(slot.tokens) >= longest or looping or (ends and not slot.asking)

    def _begin(self, number: int, block_table: BlockTable) -> Slot:
        """Return a new chat, laid out as far as it is given."""
        beginning = self._beginning(number)
        noise = np.random.Generator(np.random.Philox(key=[self._seed, number]))
        tokens = list(beginning.tokens)
        return Slot(
            number, block_table, beginning, noise, tokens, [GIVEN] * len(tokens), beginning.asking
        )

    def _room(self) -> BlockTable:
        block_table = self._engine.kv_cache.admit(NO_TOKENS, self._engine.kv_cache.longest)
        assert block_table is not None, "the pool is as large as all slots"
        return block_table


def all_wanted(rows: Rows) -> Rows:
    """Return the rows with outputs of all."""
    return dataclasses.replace(rows, outputs=np.arange(rows.count, dtype=np.int32))


def repeats_itself(tokens: list[int]) -> bool:
    """True if the last tokens are one short period, three times or over 16 tokens."""
    for period in range(1, LONGEST_PERIOD + 1):
        times = max(3, 16 // period)
        if len(tokens) < period * times:
            return False
        if tokens[-period:] * times == tokens[-period * times :]:
            return True
    return False
