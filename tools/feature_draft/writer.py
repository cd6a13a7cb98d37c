"""The target writing chats with itself, many at a time, and its features on the way.

Plain continuous batching over the product's own forward pass, without its scheduler: what is wanted
is not only the tokens but the last hidden state of every row.
"""

import dataclasses
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from tools.feature_draft.questions import Opening, QuestionSource
from tools.feature_draft.shards import ANSWERED, ASKED, GIVEN, Chat

from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.api.text import Message, Text
from outrider.worker.kv.block_pool import BlockTable, blocks_for
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.llama import Llama, PassOptions
from outrider.worker.model.load import load
from outrider.worker.model.prepared import PreparedModel
from outrider.worker.model.rows import Rows, joined, prompt_rows

LONGEST = 320
"""Tokens of a chat."""
LONGEST_QUESTION = 110
LONGEST_PERIOD = 40
ROWS = 256
GREEDY = 0.5
"""Share of answers without sampling."""
TEMPERATURES = (0.6, 0.8, 1.0)
"""Of the other answers; questions have 1."""
TOP_K, TOP_P = 64, 0.97


@dataclass(slots=True, eq=False)
class Slot:
    """One chat that is being written."""

    block_table: BlockTable
    tokens: list[int]
    writers: list[int]
    asking: bool
    """The target writes the question still."""
    temperature: float
    done: int = 0
    """Tokens whose row has run."""
    features: list[NDArray[np.float16]] = field(default_factory=list)
    """Of rows that have run, by pass."""

    @property
    def waiting(self) -> int:
        """Tokens whose row has not run."""
        return len(self.tokens) - self.done

    def chat(self) -> Chat:
        """Return what was written, the last token without its row."""
        return Chat(
            np.array(self.tokens, np.int32),
            np.array(self.writers, np.int8),
            np.concatenate(self.features),
        )


class Writer:
    """Writes chats with one target, `slots` at a time."""

    def __init__(
        self,
        target: PreparedModel,
        path: NumericPath,
        slots: int,
        questions: QuestionSource,
        seed: int = 0,
        greedy: float = GREEDY,
    ) -> None:
        """`greedy`: share of answers without sampling."""
        config, weights = load(target)
        self._ends = set(config.end_ids)
        self._kv_cache = HostKVCache(
            config.kv_shape, slots * blocks_for(LONGEST), LONGEST, prefix_cache=False
        )
        self._model = Llama(config, weights, path, self._kv_cache, ROWS, PassOptions(1))
        self._text = Text.load(target.tokenizer)
        self._questions, self._greedy = questions, greedy
        self._random = random.Random(seed)
        self._noise = torch.Generator().manual_seed(seed)
        laid_out = self._text.encode_chat([Message("user", "")])
        end = max(i for i, token in enumerate(laid_out) if token in self._ends)
        self._before, self._after = laid_out[:end], laid_out[end:]
        self._slots = [self._begin(self._room()) for _ in range(slots)]

    def write(self) -> Iterator[Chat]:
        """Yield chats as they are finished, without end."""
        return (chat for _, chat in self._finished())

    def first(self, count: int) -> list[Chat]:
        """Return the first `count` chats that began, no more than there are slots."""
        begun = self._slots[:count]
        found: dict[int, Chat] = {}
        for slot, chat in self._finished():
            if slot in begun:
                found[begun.index(slot)] = chat
            if len(found) == count:
                break
        return [found[number] for number in range(count)]

    def _finished(self) -> Iterator[tuple[Slot, Chat]]:
        while True:
            parts = self._parts()
            logits = self._model.forward(joined([rows for _, rows in parts]))
            features = self._model.features(len(logits)).astype(np.float16)
            ends = np.cumsum([rows.count for _, rows in parts])
            for (slot, rows), end in zip(parts, ends.tolist(), strict=True):
                slot.features.append(features[end - rows.count : end])
                slot.done += rows.count
            tokens = self._choose(logits[ends - 1], [slot for slot, _ in parts])
            for (slot, _), token in zip(parts, tokens, strict=True):
                if not slot.waiting and self._append(slot, token):
                    yield slot, slot.chat()
                    self._slots[self._slots.index(slot)] = self._begin(slot.block_table)

    def _parts(self) -> list[tuple[Slot, Rows]]:
        """Return rows of every slot as far as a pass has room; decoding ones first."""
        parts, free = [], ROWS
        for slot in sorted(self._slots, key=lambda slot: slot.waiting):
            count = min(slot.waiting, free)
            if count:
                tokens = np.array(slot.tokens[slot.done : slot.done + count], np.int32)
                rows = prompt_rows(tokens, slot.done, slot.block_table, wants_output=True)
                parts.append((slot, all_wanted(rows)))
                free -= count
        return parts

    def _choose(self, logits: NDArray[np.float32], slots: list[Slot]) -> list[int]:
        """Return one token by slot; `logits` [slots, vocabulary]."""
        best = torch.from_numpy(logits).topk(TOP_K)
        temperature = torch.tensor([1.0 if s.asking else s.temperature for s in slots])
        scaled = best.values / temperature.clamp_min(1e-3)[:, None]
        shares = scaled.softmax(-1)
        shares[shares.cumsum(-1) - shares > TOP_P] = 0
        drawn = torch.multinomial(shares, 1, generator=self._noise)
        drawn[temperature == 0] = 0
        chosen: list[int] = best.indices.gather(1, drawn)[:, 0].tolist()
        return chosen

    def _append(self, slot: Slot, token: int) -> bool:
        """Add what the target said; return True if that ends the chat."""
        ends = token in self._ends
        if slot.asking and (ends or slot.writers.count(ASKED) >= LONGEST_QUESTION):
            slot.tokens += self._after
            slot.writers += [GIVEN] * len(self._after)
            slot.asking = False
            return False
        slot.tokens.append(token)
        slot.writers.append(ASKED if slot.asking else ANSWERED)
        if slot.asking:
            return False
        due = len(slot.tokens) % 8 == 0
        return ends or len(slot.tokens) >= LONGEST or (due and repeats_itself(slot.tokens))

    def _begin(self, block_table: BlockTable) -> Slot:
        """Return a new chat, laid out as far as it is given."""
        question = self._questions.draw()
        asking = question.opening is not Opening.ALL
        if asking:
            tokens = self._before + (self._text.encode(question.text) if question.text else [])
        else:
            tokens = self._text.encode_chat([Message("user", question.text)])
        greedy = self._random.random() < self._greedy
        temperature = 0.0 if greedy else self._random.choice(TEMPERATURES)
        return Slot(block_table, tokens, [GIVEN] * len(tokens), asking, temperature)

    def _room(self) -> BlockTable:
        block_table = self._kv_cache.admit(np.zeros(0, np.int32), LONGEST)
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
