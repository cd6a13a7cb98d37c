"""A text, and what a draft would guess after every path: trees without models.

A text's tokens, the places at which a draft's guesses have them and how sure it is of each come
from tables: recorded from a real pair (`pair_guesses`) or drawn (`drawn_guesses`). A path is known
by a key, a hash of its tokens, so that a stage can say from its KV alone which path it computed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

VOCABULARY = 4096
CHILDREN = 10
"""Guesses after each path."""
UNGUESSED = -1
PAIR = Path(__file__).parent / "pair_guesses.npz"
_MASK = (1 << 64) - 1

Floats = NDArray[np.float32]


class Guesses(NamedTuple):
    """What a draft guesses along texts, and one wrong token beside them."""

    rank: NDArray[np.int8]
    """[positions] place of the text's next token among the guesses, or `UNGUESSED`."""
    on_path: Floats
    """[positions, CHILDREN] log-probabilities of the guesses, falling."""
    off_path: Floats
    """[wrong tokens, CHILDREN] likewise after a token that is not the text's."""


def pair_guesses(file: Path = PAIR) -> Guesses:
    """Read what was recorded from the demo's pair (`bench.flow.record_pair` of commit ba2eeaf6)."""
    with np.load(file) as tables:
        rank, on_path, off_path = (tables[name] for name in Guesses._fields)
    return Guesses(rank, on_path.astype(np.float32), off_path.astype(np.float32))


def drawn_guesses(
    sureness: float, missed: float = 0.0, positions: int = 4096, seed: int = 0
) -> Guesses:
    """Draw guesses of a calibrated draft: its first guess is right with probability `sureness`, or
    a little more often.

    It is sure in some places and not in others (Beta distribution), and what the first guess leaves
    is shared out over the next ones, each half as likely as the one before. In a share of `missed`
    of all places no guess is right; all are less sure by that.
    """
    random = np.random.default_rng(seed)
    on_path, off_path = (
        _drawn(random, sureness, positions) + np.float32(np.log1p(-missed)) for _ in range(2)
    )
    ends = np.cumsum(np.exp(on_path), axis=1)
    rank = (random.random(positions)[:, None] > ends).sum(axis=1)
    return Guesses(np.where(rank < CHILDREN, rank, UNGUESSED).astype(np.int8), on_path, off_path)


def _drawn(random: np.random.Generator, sureness: float, count: int) -> Floats:
    first = np.clip(random.beta(3 * sureness, 3 * (1 - sureness), count), 0.02, 0.999)
    rest = (1 - first)[:, None] * 0.5 ** np.arange(1, CHILDREN)
    shares = np.concatenate([first[:, None], rest], axis=1)
    return np.log(-np.sort(-shares, axis=1)).astype(np.float32)


def step(key: int, token: int) -> int:
    """Return the key of a path that is one token longer (splitmix64)."""
    mixed = (key + 0x9E3779B97F4A7C15 * (token + 1)) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)


def _first_guess(key: int) -> int:
    """Return the token of a path's first guess; the next guesses follow it."""
    return key % (VOCABULARY - CHILDREN - 1)


@dataclass(slots=True)
class Language:
    """One text of so many tokens, and all that is guessed around it."""

    guesses: Guesses
    text: NDArray[np.int32]
    """[positions] prompt and answer."""
    keys: list[int]
    """[positions] of the text up to each."""
    at: dict[int, int]
    """Position by key."""
    first: int
    """Place of the text's first token in the tables."""
    seed: int
    """Key of the empty path."""
    vocabulary: int = VOCABULARY
    """Ids that its tokens are among."""

    @classmethod
    def of(cls, guesses: Guesses, length: int, seed: int = 0) -> Self:
        """Make a text of `length` tokens that a draft guesses as the tables say."""
        first = int(np.random.default_rng(seed).integers(len(guesses.rank)))
        tokens, keys = [0], [step(seed, 0)]
        for position in range(1, length):
            rank = int(guesses.rank[(first + position - 1) % len(guesses.rank)])
            guess = CHILDREN if rank == UNGUESSED else rank
            tokens.append(_first_guess(keys[-1]) + guess)
            keys.append(step(keys[-1], tokens[-1]))
        return cls._with(guesses, np.array(tokens, np.int32), keys, first, seed)

    @classmethod
    def around(
        cls, guesses: Guesses, text: NDArray[np.int32], vocabulary: int = VOCABULARY
    ) -> Self:
        """Return a real text with guesses around it as the tables say; all others are wrong."""
        keys = [step(0, int(text[0]))]
        for token in text[1:].tolist():
            keys.append(step(keys[-1], token))
        return replace(cls._with(guesses, text, keys, 0, 0), vocabulary=vocabulary)

    @classmethod
    def _with(
        cls, guesses: Guesses, text: NDArray[np.int32], keys: list[int], first: int, seed: int
    ) -> Self:
        at = {key: position for position, key in enumerate(keys)}
        return cls(guesses, text, keys, at, first, seed)

    def key(self, key: int, tokens: Iterable[int]) -> int:
        """Return the key of a path that goes on with `tokens`."""
        for token in tokens:
            key = step(key, token)
        return key

    def next_token(self, key: int) -> int:
        """Return what the target says after a path."""
        position = self.at.get(key, len(self.text) - 1)
        if position + 1 < len(self.text):
            return int(self.text[position + 1])
        return key % VOCABULARY

    def children(self, key: int, count: int = CHILDREN) -> tuple[NDArray[np.int32], Floats]:
        """Return the draft's guesses after a path, and their log-probabilities; [count] each.

        They are as sure however far ahead of the committed text the path ends.
        """
        tokens = np.arange(count, dtype=np.int32) + np.int32(_first_guess(key))
        position = self.at.get(key)
        if position is not None:
            table, at = self.guesses.on_path, self.first + position
            self._put_right(tokens, position)
            return tokens, table[at % len(table), :count]
        table = self.guesses.off_path
        return tokens, table[key % len(table), :count]

    def _put_right(self, tokens: NDArray[np.int32], position: int) -> None:
        """Put what follows a position where the tables have it among the guesses, or nowhere."""
        rank = self.guesses.rank[(self.first + position) % len(self.guesses.rank)]
        if position + 1 == len(self.text):
            return
        right = self.text[position + 1]
        tokens[tokens == right] = _first_guess(self.keys[position]) + CHILDREN + 1
        if 0 <= rank < len(tokens):
            tokens[rank] = right
