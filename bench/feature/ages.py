"""How often a draft is right, by how far its last true feature lies back.

Everything before that is the text's, so that only the draft's own features differ: as if the tree
had grown along the text. EAGLE's rounds have age 1 at the root, 2 one level below, and so on.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from bench.feature.growing import Guesser
from outrider.distil.batches import batch_of
from outrider.distil.network import Draft
from outrider.distil.shards import ANSWERED, Chat
from outrider.distil.training import seen_before

KeysValues = tuple[Tensor, Tensor]


def right_by_age(guesser: Guesser, chat: Chat, ages: int) -> np.ndarray:
    """Return bool [ages, answered tokens]: True where the likeliest output is the text's token."""
    batch = batch_of([chat], 0.0)
    wanted = chat.tokens[1:]
    answered = chat.writers[1:] == ANSWERED
    found = []
    for hidden in hidden_by_age(guesser.draft, batch.tokens, batch.features, ages):
        likeliest = guesser.draft.logits(hidden[0]).argmax(-1).numpy()
        found.append((guesser.ids[likeliest] == wanted)[answered])
    return np.stack(found)


def hidden_by_age(draft: Draft, tokens: Tensor, features: Tensor, ages: int) -> Iterator[Tensor]:
    """Yield hidden states [texts, rows, hidden], age after age from 1.

    At age a a row has seen true features up to a positions back, its own guesses behind those; so
    have the keys and values that it attends to.
    """
    positions = torch.arange(tokens.shape[1])
    kept: list[list[KeysValues]] = []
    seen = seen_before(features)
    for _ in range(ages):
        kept.append([])
        hidden = draft(
            tokens,
            seen,
            positions,
            lambda layer, q, k, v: _attend(kept, layer, q, k, v),
        )
        yield hidden
        seen = seen_before(hidden)


def _attend(kept: list[list[KeysValues]], layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend to the position j before with what it had at an age less by j, 1 at the least.

    Returns [texts, heads, rows, head_dim].
    """
    times = q.shape[-3] // k.shape[-3]
    k, v = (x.repeat_interleave(times, -3) for x in (k, v))
    kept[-1].append((k, v))
    older = len(kept) - 1
    rows = torch.arange(q.shape[-2])
    far_k, far_v = kept[0][layer]
    far = q @ far_k.transpose(-1, -2)  # [texts, heads, rows, rows]
    far = far.masked_fill(rows[:, None] - rows < older, float("-inf"))
    near = [_before(kept[older - j][layer][0], j) for j in range(older)]
    scores = torch.cat([far, *[(q * one).sum(-1, keepdim=True) for one in near]], -1)
    for j in range(older):
        scores[..., :j, len(rows) + j] = float("-inf")
    shares = (scores / q.shape[-1] ** 0.5).softmax(-1)
    context = shares[..., : len(rows)] @ far_v
    for j in range(older):
        context += shares[..., len(rows) + j, None] * _before(kept[older - j][layer][1], j)
    return context


def _before(x: Tensor, by: int) -> Tensor:
    """Return [..., rows, head_dim], of each row that of `by` rows before, zeros at first."""
    return torch.nn.functional.pad(x, (0, 0, by, 0))[..., : x.shape[-2], :]
