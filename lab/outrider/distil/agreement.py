"""How well a served draft guesses its target's next token, over texts of the target."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from outrider.distil.answers import NO_TOKENS, all_wanted
from outrider.distil.engine import Engine
from outrider.distil.shards import ANSWERED, Chat
from outrider.worker.model.rows import prompt_rows

WITHIN = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Means over answered tokens."""

    tokens: int
    top: dict[int, float]
    """Share of positions where the target's likeliest token is among the draft's n likeliest."""
    covered: float
    """Share of positions where the target's likeliest token is among the draft's outputs at all."""
    divergence: float
    """Divergence of the draft's distribution from the target's, over the draft's outputs; nats."""
    overlap: float
    """Sum of the lesser probability of each token: what sampling at temperature 1 accepts."""


@torch.no_grad()
def agreement(draft: Engine, chats: Sequence[Chat], head: Tensor) -> Agreement:
    """Compare a draft with the target's features; `head` [vocabulary, hidden] is the target's."""
    ids = torch.tensor(draft.config.output_ids or range(draft.config.vocab))
    parts = []
    for chat in chats:
        answered = torch.from_numpy(np.flatnonzero(chat.writers[1:] == ANSWERED))
        own = torch.from_numpy(logits_of(draft, chat.tokens))[answered]
        true = torch.from_numpy(np.asarray(chat.features, np.float32))[answered]
        parts.append(_compared(own, F.linear(true, head), ids))
    means = torch.cat(parts).mean(0).tolist()
    top = dict(zip(WITHIN, means, strict=False))
    covered, divergence, overlap = means[len(WITHIN) :]
    return Agreement(sum(len(part) for part in parts), top, covered, divergence, overlap)


def logits_of(engine: Engine, tokens: NDArray[np.int32]) -> NDArray[np.float32]:
    """Return a model's logits behind every token of a text but the last, [tokens - 1, outputs]."""
    block_table = engine.kv_cache.admit(NO_TOKENS, len(tokens))
    assert block_table is not None, "nothing else is in the pool"
    found = []
    for begin in range(0, len(tokens) - 1, engine.row_capacity):
        part = tokens[begin : min(begin + engine.row_capacity, len(tokens) - 1)]
        rows = all_wanted(prompt_rows(part, begin, block_table, wants_output=True))
        found.append(engine.forward(rows).copy())
    engine.kv_cache.free(block_table)
    return np.concatenate(found)


def _compared(own: Tensor, true: Tensor, ids: Tensor) -> Tensor:
    """Return figures [rows, WITHIN and three more] of logits over outputs and over all tokens."""
    wanted = true.argmax(-1, keepdim=True)
    best = ids[own.topk(min(WITHIN[-1], own.shape[1])).indices] == wanted
    within = [best[:, :n].any(-1).float() for n in WITHIN]
    covered = torch.isin(wanted[:, 0], ids).float()
    guessed, likely = own.log_softmax(-1), true[:, ids].log_softmax(-1)
    divergence = (likely.exp() * (likely - guessed)).sum(-1)
    overlap = torch.minimum(true.softmax(-1)[:, ids], guessed.exp()).sum(-1)
    return torch.stack([*within, covered, divergence, overlap], 1)
