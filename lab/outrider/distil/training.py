"""Training of a draft on chats of its target: loss, steps, checkpoint.

Everything follows from the recipe's seed and the chats: a run that was killed goes on from its last
checkpoint as if nothing had happened.
"""

import io
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from outrider.distil.batches import batch_of, endless
from outrider.distil.errors import BadRecipe
from outrider.distil.network import Draft
from outrider.distil.shards import Chat
from outrider.distil.whole_files import write_whole
from outrider.kernels.jit import isa

SAVE_EVERY = 50
"""Steps; so are those between two validations."""


@dataclass(frozen=True, slots=True)
class TrainingRecipe:
    """How a draft is trained."""

    steps: int
    batch_tokens: int = 1200
    learning_rate: float = 1e-3
    warm_up: int = 20
    """Steps of warm-up."""
    floor: float = 0.03
    """Learning rate at the end, as a share of the highest."""
    asked_weight: float = 0.1
    """Weight of tokens that the target wrote as user; those of answers have 1."""
    decay: float = 0.01
    clip: float = 1.0
    seed: int = 0

    def rate(self, step: int) -> float:
        """Return the learning rate of a step: a short rise, then half a cosine."""
        cosine = 0.5 + 0.5 * math.cos(math.pi * min(1.0, step / self.steps))
        rise = min(1.0, (step + 1) / self.warm_up)
        return self.learning_rate * rise * (self.floor + (1 - self.floor) * cosine)


class Corpus(NamedTuple):
    """Chats to train on, and chats to test on."""

    held_out: Sequence[Chat]
    chats: Sequence[Chat]

    def check(self) -> None:
        """Raise `BadRecipe` if so few chats cannot train."""
        if not self.chats or not self.held_out:
            raise BadRecipe(
                f"{len(self.chats)} chats to train on and {len(self.held_out)} to test on: at "
                "least one of each must be written before a draft can be trained"
            )


def quick_products(device: torch.device | str = "cpu") -> torch.autocast:
    """Return a context whose matrix products are of bfloat16; on a CPU, their softmax is, too.

    A step takes 0.41 of the time on one thread of a Zen 5 with AVX512-BF16 (busy machine). A CPU
    without such instructions keeps to float32: there bfloat16 is emulated.
    """
    kind = torch.device(device).type
    enabled = kind != "cpu" or bool(isa.features().get("avx512bf16"))
    return torch.autocast(kind, torch.bfloat16, enabled=enabled)


class Distance(NamedTuple):
    """How far a draft is from its target on some rows."""

    guessed: Tensor
    """[rows, outputs] the draft's log-probabilities."""
    wanted: Tensor
    """[rows, outputs] the target's, over the draft's outputs."""

    @property
    def divergence(self) -> Tensor:
        """[rows] of the next token's distribution from the target's; nats."""
        return (self.wanted.exp() * (self.wanted - self.guessed)).sum(-1)

    @property
    def agrees(self) -> Tensor:
        """[rows] True where both have the same likeliest token."""
        return self.guessed.argmax(-1) == self.wanted.argmax(-1)


def distance(draft: Draft, hidden: Tensor, features: Tensor) -> Distance:
    """Compare hidden states with the target's features, [rows, the model's hidden] each."""
    with torch.no_grad():
        wanted = draft.target_logits(features).float().log_softmax(-1)
    return Distance(draft.logits(hidden).float().log_softmax(-1), wanted)


def check_writable(file: Path) -> None:
    """Raise `BadRecipe` if a checkpoint cannot be written there."""
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise BadRecipe(f"{file.parent} is no folder that can be written to")


class Training:
    """One run; `notes` are kept with the checkpoint."""

    def __init__(
        self,
        draft: Draft,
        corpus: Corpus,
        recipe: TrainingRecipe,
        file: Path,
        notes: dict[str, Any],
    ) -> None:
        self.draft, self.recipe, self.file, self._notes = draft, recipe, file, notes
        self._held_out, self._chats = corpus
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

    @property
    def device(self) -> torch.device:
        return self.draft.norm.device

    def run(self, watch: Callable[["Training"], object]) -> None:
        """Take the steps that are left; `watch` is called after each, and before the first.

        Raises `BadRecipe` for a checkpoint of another recipe, and `NotWritten`.
        """
        self._resume()
        recipe, lengths = self.recipe, [len(chat.tokens) for chat in self._chats]
        order = endless(lengths, recipe.batch_tokens, recipe.seed)
        for _ in range(self.step):
            next(order)
        if not self.curve:
            self._validate()
        watch(self)
        while self.step < recipe.steps:
            self._take(next(order))
            if self.step % SAVE_EVERY == 0 or self.step == recipe.steps:
                self._validate()
                self._save()
            watch(self)

    def _take(self, chosen: list[int]) -> None:
        """Take one step; its randomness is that of its number alone."""
        recipe = self.recipe
        torch.manual_seed(recipe.seed * 1_000_003 + self.step)
        chats = [self._chats[i] for i in chosen]
        batch = batch_of(chats, recipe.asked_weight).to(self.device)
        rows = batch.weights > 0
        weights = batch.weights[rows]
        with quick_products(self.device):
            hidden = self.draft(batch.tokens)
            loss = distance(self.draft, hidden[rows], batch.features[rows]).divergence
        ((loss * weights).sum() / weights.sum().clamp_min(1)).backward()
        torch.nn.utils.clip_grad_norm_(self.draft.parameters(), recipe.clip)
        for group in self._optimizer.param_groups:
            group["lr"] = recipe.rate(self.step)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.step += 1

    @torch.no_grad()
    def _validate(self) -> None:
        """Compare with the target on what is held out; [rows] means."""
        found: list[tuple[Tensor, Tensor]] = []
        for i in range(0, len(self._held_out), 4):
            batch = batch_of(self._held_out[i : i + 4], 0.0).to(self.device)
            rows = batch.weights > 0
            with quick_products(self.device):
                hidden = self.draft(batch.tokens)
                one = distance(self.draft, hidden[rows], batch.features[rows])
                found.append((one.divergence, one.agrees))
        means = [torch.cat(column).float().mean().item() for column in zip(*found, strict=True)]
        names = ("divergence", "agreement")
        self.curve.append({"step": self.step} | dict(zip(names, means, strict=True)))

    def _save(self) -> None:
        fields = {
            "recipe": asdict(self.recipe),
            "notes": self._notes,
            "step": self.step,
            "curve": self.curve,
            "draft": self.draft.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        }
        made = io.BytesIO()
        torch.save(fields, made)  # into a file, torch hides that the disk is full
        write_whole(self.file, lambda opened: opened.write(made.getbuffer()))

    def _resume(self) -> None:
        """Go on from the checkpoint, if there is one; raises `BadRecipe` for another recipe's."""
        if not self.file.exists():
            return
        fields = torch.load(self.file, weights_only=True, map_location=self.device)
        differences = changed(fields["recipe"] | fields["notes"], asdict(self.recipe) | self._notes)
        if differences:
            raise BadRecipe(f"{self.file} is of another recipe: {differences}")
        self.step, self.curve = fields["step"], fields["curve"]
        self.draft.load_state_dict(fields["draft"])
        self._optimizer.load_state_dict(fields["optimizer"])


def changed(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Say which fields differ, and how; empty if none does."""
    keys = [key for key in now | before if before.get(key) != now.get(key)]
    return ", ".join(f"{key} {before.get(key)}, not {now.get(key)}" for key in keys)
