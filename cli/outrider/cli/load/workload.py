"""The workload: an endless sequence of jobs, the same for the same seed.

Lengths are `lengths`', texts `prompts`'; sending is `exchange`'s.
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from outrider.cli.load.lengths import Lengths
from outrider.cli.load.prompts import BundledPrompt, Conversation, Turn

CHARACTERS_PER_TOKEN = 4.0
"""Of English text with today's vocabularies, about; the endpoint's usage says what it was."""
TOKENS_PER_TURN = 5
"""What a chat template adds to each message, about."""
PAIRS = 16
"""Different (prompt, seed) pairs that are asked over and over where texts are checked and nobody
said how many."""
LAST_SEED = 2**31 - 1
UNREAD = 0.25
"""Cancellations before any text, by those during it: they meet a request that waits or prefills."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One request to be."""

    turns: tuple[Turn, ...]
    max_tokens: int
    seed: int
    temperature: float
    cancel_after: float | None = None
    """Give up once about so many tokens came; None reads the whole answer, below 0 none of it."""
    pair: int | None = None
    """Jobs of the same number ask exactly the same and must be answered alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadWorkload:
    """Parameters of a workload."""

    source: Sequence[BundledPrompt] | Sequence[Conversation]
    """Bundled prompts are joined to the sampled length; conversations are sent as they are."""
    lengths: Lengths
    temperature: float | None = None
    """None: greedy, except for every second pair of a check, which is sampled at 0.8."""
    cancel_share: float = 0.0
    checked_pairs: int = 0
    """Every second request is one of so many pairs; 0: texts are not checked."""

    def jobs(self, seed: int) -> Iterator[Job]:
        """Yield jobs without end."""
        rng = random.Random(seed)
        pairs = [self._pair(rng, number) for number in range(self.checked_pairs)]
        for number in itertools.count():
            checked = pairs and number % 2 == 0
            job = pairs[number // 2 % len(pairs)] if checked else self._job(rng)
            stop, point = rng.random(), rng.uniform(-UNREAD, 1)
            cancelled = stop < self.cancel_share
            yield replace(job, cancel_after=point * job.max_tokens) if cancelled else job

    def _pair(self, rng: random.Random, number: int) -> Job:
        job = self._job(rng)
        sampled = self.temperature is None and number % 2 == 1
        return replace(job, pair=number, temperature=0.8 if sampled else job.temperature)

    def _job(self, rng: random.Random) -> Job:
        prompt, answer = self.lengths.sample(rng)
        one = rng.choice(self.source)
        if isinstance(one, Conversation):
            turns, answer = one.turns, one.max_tokens or answer
        else:
            texts = [entry.text for entry in self.source if isinstance(entry, BundledPrompt)]
            turns = conversation(texts, prompt, rng)
        return Job(
            turns=turns,
            max_tokens=answer,
            seed=rng.randint(0, LAST_SEED),
            temperature=self.temperature or 0.0,
        )


def conversation(texts: Sequence[str], tokens: int, rng: random.Random) -> tuple[Turn, ...]:
    """Return turns of about `tokens` tokens that end in a question of the user's.

    Grown backwards from the last question; the oldest turn is cut where the length is reached.
    """
    turns: list[Turn] = []
    left = float(tokens)
    while left > TOKENS_PER_TURN or not turns:
        room = max(1, int((left - TOKENS_PER_TURN) * CHARACTERS_PER_TOKEN))
        role = "assistant" if len(turns) % 2 else "user"
        text = rng.choice(texts)
        turns.append(Turn(role, _cut(text, room)))
        left -= TOKENS_PER_TURN + len(text) / CHARACTERS_PER_TOKEN
    if turns[-1].role == "assistant":
        turns.append(Turn("user", "Hello."))
    return tuple(reversed(turns))


def _cut(text: str, characters: int) -> str:
    """The end of `text`, from a word's beginning, at most `characters` long; never empty."""
    if len(text) <= characters:
        return text
    tail = text[len(text) - characters :]
    _, _, words = tail.partition(" ")
    return words or text.split()[-1]
