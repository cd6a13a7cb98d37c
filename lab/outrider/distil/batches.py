"""Batches of chats: chats of like lengths side by side, in an order that follows from a seed."""

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from outrider.distil.shards import ANSWERED, ASKED, GUESSED, Chat

JITTER = 24
"""Tokens by which lengths are blurred, so that batches differ between epochs."""


class Batch(NamedTuple):
    """Chats side by side, padded behind their ends."""

    tokens: Tensor
    """Token ids: int64 [texts, rows]."""
    features: Tensor
    """[texts, rows, hidden] the target's own, which make the token after each."""
    weights: Tensor
    """[texts, rows] of the token after each, 0 for what is given."""

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device."""
        return Batch._make(tensor.to(device) for tensor in self)


def batch_of(chats: Sequence[Chat], asked_weight: float) -> Batch:
    """Lay out chats."""
    rows, hidden = max(len(chat.tokens) for chat in chats) - 1, chats[0].features.shape[1]
    tokens = torch.zeros(len(chats), rows, dtype=torch.int64)
    features = torch.zeros(len(chats), rows, hidden)
    weights = torch.zeros(len(chats), rows)
    share = np.zeros(4, np.float32)
    share[[ASKED, ANSWERED, GUESSED]] = asked_weight, 1, 1
    for line, chat in enumerate(chats):
        count = len(chat.tokens) - 1
        tokens[line, :count] = torch.from_numpy(chat.tokens[:-1].astype(np.int64))
        features[line, :count] = torch.from_numpy(chat.features.astype(np.float32))
        weights[line, :count] = torch.from_numpy(share[chat.writers[1:]])
    return Batch(tokens, features, weights)


def batches(lengths: Sequence[int], most: int, rng: random.Random) -> list[list[int]]:
    """Return the chats of each batch of one epoch: about as long as each other, in random order.

    A batch has at most `most` padded tokens, and one chat at least.
    """
    order = sorted(range(len(lengths)), key=lambda i: lengths[i] + JITTER * rng.random())
    found: list[list[int]] = []
    longest = most
    for chat in order:
        if not found or max(longest, lengths[chat]) * (len(found[-1]) + 1) > most:
            found.append([])
            longest = 0
        found[-1].append(chat)
        longest = max(longest, lengths[chat])
    rng.shuffle(found)
    return found


def endless(lengths: Sequence[int], most: int, seed: int) -> Iterator[list[int]]:
    """Yield batches, epoch after epoch."""
    epoch = 0
    while True:
        yield from batches(lengths, most, random.Random(f"{seed} {epoch}"))
        epoch += 1
