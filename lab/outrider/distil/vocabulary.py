"""Reduced output vocabulary of a draft: which of the target's tokens it can output.

Those that the target says most often: counted in what it wrote, at most a few times a chat so that
a text that loops fills no list, and weighed by what it might have said instead (its probabilities
on a sample of answered positions).
"""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from outrider.distil.shards import ANSWERED, GIVEN, Chat
from outrider.distil.training import quick_products

MOST_A_CHAT = 8
"""Times that one token counts in one chat."""
POSITIONS = 20_000
"""Sampled for probabilities."""
CHUNK = 512
"""Positions of one product, for which the head is rounded anew."""

Ids = NDArray[np.int64]


def choose_ids(
    chats: Sequence[Chat], head: Tensor, count: int, always: Sequence[int], seed: int
) -> Ids:
    """Return `count` ids, rising; those of `always` are among them. `head` [vocabulary, hidden]."""
    scores = counts(chats, len(head)) + probabilities(chats, head, seed)
    scores[list(always)] = np.inf
    best = np.argsort(-scores, kind="stable")[:count]
    return np.sort(best)


def counts(chats: Sequence[Chat], vocabulary: int) -> NDArray[np.float64]:
    """Return how often each token was written, [vocabulary]."""
    found = np.zeros(vocabulary)
    for chat in chats:
        tokens, times = np.unique(chat.tokens[chat.writers != GIVEN], return_counts=True)
        found[tokens] += np.minimum(times, MOST_A_CHAT)
    return found


@torch.no_grad()
def probabilities(chats: Sequence[Chat], head: Tensor, seed: int) -> NDArray[np.float64]:
    """Return the target's probability of each token, summed over answers, [vocabulary]."""
    rows = [np.flatnonzero(chat.writers[1:] == ANSWERED) for chat in chats]
    total = sum(len(one) for one in rows)
    share = min(1.0, POSITIONS / max(total, 1))
    rng = np.random.default_rng(seed)
    picked = [one[rng.random(len(one)) < share] for one in rows]
    places = zip(chats, picked, strict=True)
    features = np.concatenate([chat.features[at] for chat, at in places]).astype(np.float32)
    found = torch.zeros(len(head), dtype=torch.float64, device=head.device)
    for begin in range(0, len(features), CHUNK):
        part = torch.from_numpy(features[begin : begin + CHUNK]).to(head)
        with quick_products(head.device):
            found += F.linear(part, head).float().softmax(-1).sum(0)
    scaled: NDArray[np.float64] = found.cpu().numpy() * (total / max(len(features), 1))
    return scaled


def coverage(chats: Sequence[Chat], ids: Ids) -> float:
    """Return the share of answered tokens that are among the ids."""
    answered = np.concatenate([chat.tokens[chat.writers == ANSWERED] for chat in chats])
    return float(np.isin(answered, ids).mean())
