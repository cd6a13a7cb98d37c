"""Training of a draft on chats of its target: batches, loss, steps, checkpoint.

Everything follows from the recipe's seed and the chats: a run that was killed goes on from its last
checkpoint as if nothing had happened.
"""

import math
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from tools.feature_draft.network import Draft, causal
from tools.feature_draft.shards import ANSWERED, ASKED, Chat
from torch import Tensor

HELD_OUT = 32
"""Chats, the first ones, on which nothing is trained."""
SAVE_EVERY = 50
"""Steps; so are those between two validations."""
LONGEST_SPAN = 6


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a draft is trained."""

    steps: int
    batch_tokens: int = 1200
    learning_rate: float = 1e-3
    warm_up: int = 20
    """Steps."""
    floor: float = 0.03
    """Learning rate at the end, as a share of the highest."""
    asked_weight: float = 0.1
    """Of tokens that the target wrote as user; those of answers have 1."""
    feature_weight: float = 0.2
    """Of the distance to the target's next feature, beside the divergence of the next token."""
    span_share: float = 0.12
    """Positions at which a span begins where the draft sees its own features."""
    decay: float = 0.01
    clip: float = 1.0
    seed: int = 0

    def rate(self, step: int) -> float:
        """Return the learning rate of a step: a short rise, then half a cosine."""
        cosine = 0.5 + 0.5 * math.cos(math.pi * min(1.0, step / self.steps))
        rise = min(1.0, (step + 1) / self.warm_up)
        return self.learning_rate * rise * (self.floor + (1 - self.floor) * cosine)


class Batch(NamedTuple):
    """Chats side by side, padded behind their ends."""

    tokens: Tensor
    """int64 [texts, rows]."""
    features: Tensor
    """[texts, rows, hidden] the target's own, which make the token after each."""
    weights: Tensor
    """[texts, rows] of the token after each, 0 for what is given."""


def batch_of(chats: Sequence[Chat], asked_weight: float) -> Batch:
    """Lay out chats."""
    rows, hidden = max(len(chat.tokens) for chat in chats) - 1, chats[0].features.shape[1]
    tokens = torch.zeros(len(chats), rows, dtype=torch.int64)
    features = torch.zeros(len(chats), rows, hidden)
    weights = torch.zeros(len(chats), rows)
    share = np.zeros(3, np.float32)
    share[ASKED], share[ANSWERED] = asked_weight, 1
    for line, chat in enumerate(chats):
        count = len(chat.tokens) - 1
        tokens[line, :count] = torch.from_numpy(chat.tokens[:-1].astype(np.int64))
        features[line, :count] = torch.from_numpy(chat.features.astype(np.float32))
        weights[line, :count] = torch.from_numpy(share[chat.writers[1:]])
    return Batch(tokens, features, weights)


def batches(chats: Sequence[Chat], recipe: Recipe, epoch: int) -> list[list[int]]:
    """Return the chats of each batch of one epoch: about as long as each other, in random order."""
    rng = random.Random(f"{recipe.seed} {epoch}")
    order = sorted(range(len(chats)), key=lambda i: len(chats[i].tokens) + 24 * rng.random())
    found: list[list[int]] = []
    longest = recipe.batch_tokens
    for chat in order:
        length = len(chats[chat].tokens)
        if not found or max(longest, length) * (len(found[-1]) + 1) > recipe.batch_tokens:
            found.append([])
            longest = 0
        found[-1].append(chat)
        longest = max(longest, length)
    rng.shuffle(found)
    return found


def endless(chats: Sequence[Chat], recipe: Recipe) -> Iterator[list[int]]:
    """Yield batches, epoch after epoch."""
    epoch = 0
    while True:
        yield from batches(chats, recipe, epoch)
        epoch += 1


def seen_before(features: Tensor) -> Tensor:
    """Return what each row sees: the feature of the position before, zeros at the first."""
    return F.pad(features, (0, 0, 1, 0))[:, :-1]


def hidden_states(draft: Draft, batch: Batch, span_share: float) -> Tensor:
    """Return hidden states of a batch; in random spans the draft sees its own features.

    Those come from passes before, without gradient: first where all features are the target's, then
    often once more, where some are the draft's own (as in HASS, arXiv 2408.15766).
    """
    positions = torch.arange(batch.tokens.shape[1])
    true = seen = seen_before(batch.features)
    if draft.sees_features and span_share > 0:
        own = spans(batch.tokens.shape, span_share)[..., None]
        for _ in range(1 + int(torch.rand(1).item() < 0.5)):
            with torch.no_grad():
                guessed = seen_before(draft(batch.tokens, seen, positions, causal))
            seen = torch.where(own, guessed, true)
    made: Tensor = draft(batch.tokens, seen, positions, causal)
    return made


def spans(shape: torch.Size, share: float) -> Tensor:
    """Return bool [texts, rows], True in spans of 1 to `LONGEST_SPAN` rows; `share` begin one."""
    begins = torch.rand(shape) < share
    lengths = torch.randint(1, LONGEST_SPAN + 1, shape)
    within = torch.zeros(shape, dtype=torch.bool)
    for behind in range(min(LONGEST_SPAN, shape[1])):
        reaches = begins & (lengths > behind)
        within[:, behind:] |= reaches[:, : shape[1] - behind]
    return within


def quick_products() -> torch.autocast:
    """Return a context whose matrix products are of bfloat16, all else of float32.

    A step takes 0.41 of the time on one thread of a Zen 5 with AVX512-BF16 (busy machine).
    """
    return torch.autocast("cpu", torch.bfloat16)


class Distance(NamedTuple):
    """How far a draft is from its target on some rows."""

    divergence: Tensor
    """[rows] of the next token's distribution from the target's, over the draft's outputs; nats."""
    feature: Tensor
    """[rows] of the hidden state from the target's, both of length one on average."""
    agrees: Tensor
    """[rows] True where both have the same likeliest token."""


def distance(draft: Draft, hidden: Tensor, features: Tensor) -> Distance:
    """Compare hidden states with the target's features, [rows, hidden] each."""
    guessed = draft.logits(hidden).log_softmax(-1)
    with torch.no_grad():
        wanted = draft.logits(features).log_softmax(-1)
    own, true = (F.rms_norm(x, x.shape[-1:]) for x in (hidden, features))
    return Distance(
        (wanted.exp() * (wanted - guessed)).sum(-1),
        F.smooth_l1_loss(own, true, reduction="none").mean(-1),
        guessed.argmax(-1) == wanted.argmax(-1),
    )


def check(chats: int, file: Path) -> None:
    """Raise `ValueError` if so few chats cannot train, or a checkpoint cannot be written there."""
    if chats <= HELD_OUT:
        raise ValueError(
            f"{chats} chats: the first {HELD_OUT} are held out, so at least {HELD_OUT + 1} must be "
            "written before a draft can be trained"
        )
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise ValueError(f"{file.parent} is no folder that can be written to")


class Training:
    """One run; `notes` are kept with the checkpoint."""

    def __init__(
        self, draft: Draft, chats: Sequence[Chat], recipe: Recipe, file: Path, notes: dict[str, Any]
    ) -> None:
        self.draft, self.recipe, self.file, self._notes = draft, recipe, file, notes
        self._held_out, self._chats = chats[:HELD_OUT], chats[HELD_OUT:]
        matrices = [p for p in draft.parameters() if p.ndim == 2]
        vectors = [p for p in draft.parameters() if p.ndim == 1]
        self._optimizer = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": recipe.decay},
                {"params": vectors, "weight_decay": 0.0},
            ],
            lr=recipe.learning_rate,
            betas=(0.9, 0.95),
            fused=True,
        )
        self.step = 0
        self.curve: list[dict[str, float]] = []
        """What `validate` found, by step."""

    def run(self, say: Callable[[str], None]) -> None:
        """Take the steps that are left."""
        self._resume()
        order = endless(self._chats, self.recipe)
        for _ in range(self.step):
            next(order)
        if not self.curve:
            self._validate(say, 0.0)
        began, first = time.monotonic(), self.step
        while self.step < self.recipe.steps:
            self._take(next(order))
            if self.step % SAVE_EVERY == 0 or self.step == self.recipe.steps:
                each = (time.monotonic() - began) / (self.step - first)
                self._validate(say, each * (self.recipe.steps - self.step))
                self._save()

    def _take(self, chosen: list[int]) -> None:
        """Take one step; its randomness is that of its number alone."""
        recipe = self.recipe
        torch.manual_seed(recipe.seed * 1_000_003 + self.step)
        batch = batch_of([self._chats[i] for i in chosen], recipe.asked_weight)
        rows = batch.weights > 0
        weights = batch.weights[rows]
        with quick_products():
            hidden = hidden_states(self.draft, batch, recipe.span_share)
            away = distance(self.draft, hidden[rows], batch.features[rows])
            loss = away.divergence + recipe.feature_weight * away.feature
        ((loss * weights).sum() / weights.sum().clamp_min(1)).backward()
        torch.nn.utils.clip_grad_norm_(self.draft.parameters(), recipe.clip)
        for group in self._optimizer.param_groups:
            group["lr"] = recipe.rate(self.step)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.step += 1

    @torch.no_grad()
    def _validate(self, say: Callable[[str], None], left: float) -> None:
        """Compare with the target on what is held out, with all features true; [rows] means."""
        found: list[Distance] = []
        for i in range(0, len(self._held_out), 4):
            batch = batch_of(self._held_out[i : i + 4], 0.0)
            rows = batch.weights > 0
            with quick_products():
                hidden = hidden_states(self.draft, batch, 0.0)
                found.append(distance(self.draft, hidden[rows], batch.features[rows]))
        means = [torch.cat(column).float().mean().item() for column in zip(*found, strict=True)]
        names = ("divergence", "feature", "agreement")
        self.curve.append({"step": self.step} | dict(zip(names, means, strict=True)))
        shown = ", ".join(f"{name} {mean:.4f}" for name, mean in zip(names, means, strict=True))
        say(f"step {self.step} of {self.recipe.steps}: {shown}; {left / 60:.0f} min left")

    def _save(self) -> None:
        fresh = self.file.with_suffix(".part")
        fields = {
            "recipe": asdict(self.recipe),
            "notes": self._notes,
            "step": self.step,
            "curve": self.curve,
            "draft": self.draft.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        }
        torch.save(fields, fresh)
        fresh.replace(self.file)

    def _resume(self) -> None:
        """Go on from the checkpoint, if there is one; raises `ValueError` for another recipe's."""
        if not self.file.exists():
            return
        fields = torch.load(self.file, weights_only=True)
        before, now = fields["recipe"] | fields["notes"], asdict(self.recipe) | self._notes
        changed = [key for key in now | before if before.get(key) != now.get(key)]
        if changed:
            told = ", ".join(f"{key} {before.get(key)}, not {now.get(key)}" for key in changed)
            raise ValueError(f"{self.file} is of another recipe: {told}")
        self.step, self.curve = fields["step"], fields["curve"]
        self.draft.load_state_dict(fields["draft"])
        self._optimizer.load_state_dict(fields["optimizer"])
