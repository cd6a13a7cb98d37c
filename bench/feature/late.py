"""What the target's features add behind the plain draft: `python -m bench.feature.late`.

A small network sees the plain draft's last hidden state and the target's feature of so many
positions before (its age), and corrects the former. The layers stay as they are, so that it trains
in seconds where a whole head takes hours: a lower bound of what features are worth, by age. Beside
it stands the same network that sees the hidden state twice.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from tools.feature_draft.__main__ import HELD_OUT
from tools.feature_draft.start import PLAIN, Pair
from torch import Tensor, nn

from bench.feature.answers import answers
from bench.report import RESULTS, prompts, write_report
from outrider.distil.batches import batch_of
from outrider.distil.network import Draft, causal
from outrider.distil.shards import ANSWERED, Chat, load_shard, shard_files
from outrider.distil.training import distance, quick_products

OLDEST = 8
BLIND = 0
"""In place of an age: no feature."""
BATCH = 768


class Known(NamedTuple):
    """Rows of answers, and what is known of each."""

    hidden: Tensor
    """[rows, hidden] of the plain draft, after its final norm."""
    features: Tensor
    """[rows, OLDEST + 1, hidden] of the target, by age; at 0 the one that is to be guessed."""
    tokens: Tensor
    """[rows] the text's next."""


class Correction(nn.Module):
    """Adds to a hidden state what another vector beside it says; nothing, before it is trained."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.inner = nn.Linear(2 * hidden, hidden)
        self.outer = nn.Linear(hidden, hidden, bias=False)
        nn.init.zeros_(self.outer.weight)

    def forward(self, hidden: Tensor, beside: Tensor) -> Tensor:
        """Return corrected hidden states [rows, hidden]."""
        both = [F.rms_norm(x, x.shape[-1:]) for x in (hidden, beside)]
        corrected: Tensor = hidden + self.outer(F.silu(self.inner(torch.cat(both, -1))))
        return corrected


@torch.no_grad()
def known(draft: Draft, chats: Sequence[Chat]) -> Known:
    """Run the plain draft over chats; rows too early to have the oldest feature are left out."""
    found: list[Known] = []
    for begin in range(0, len(chats), 4):
        part = chats[begin : begin + 4]
        batch = batch_of(part, 0.0)
        with quick_products():
            hidden = draft(
                batch.tokens, batch.features, torch.arange(batch.tokens.shape[1]), causal
            ).float()
        for line, chat in enumerate(part):
            rows = np.flatnonzero(chat.writers[1:] == ANSWERED)
            rows = torch.from_numpy(rows[rows >= OLDEST])
            ages = torch.arange(OLDEST + 1)
            features = batch.features[line][rows[:, None] - ages]
            text = torch.from_numpy(chat.tokens[1:].astype(np.int64))[rows]
            found.append(Known(hidden[line][rows], features, text))
    return Known._make(torch.cat(column) for column in zip(*found, strict=True))


def trained(draft: Draft, data: Known, age: int, steps: int, seed: int) -> Correction:
    """Train a correction towards the target's next token, as `tools.feature_draft` does."""
    torch.manual_seed(seed)
    correction = Correction(draft.config.hidden)
    optimizer = torch.optim.AdamW(correction.parameters(), lr=1e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        rows = torch.randint(len(data.hidden), (BATCH,))
        with quick_products():
            guess = correction(data.hidden[rows], beside(data, age)[rows])
            loss = distance(draft, guess, data.features[rows, 0]).divergence.mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    return correction


def beside(data: Known, age: int) -> Tensor:
    """Return what a correction sees beside the hidden state [rows, hidden]."""
    return data.hidden if age == BLIND else data.features[:, age]


@torch.no_grad()
def right(draft: Draft, ids: Tensor, data: Known, hidden: Tensor) -> float:
    """Return how often the likeliest output is the text's next token."""
    return (ids[draft.logits(hidden).argmax(-1)] == data.tokens).float().mean().item()


def main() -> int:
    """Train, measure, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("chats", type=Path, help="folder of `tools.feature_draft write`")
    parser.add_argument("--answers", type=Path, default=Path("answers"))
    parser.add_argument("--limit", type=int, default=200, help="chats to train on")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--ages", type=int, nargs="+", default=[1, 2, 4, OLDEST])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS / "late_features.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    load_average = os.getloadavg()
    pair = Pair.prepare()
    draft = pair.start(PLAIN, sees_features=False).requires_grad_(False)
    ids = torch.tensor(pair.draft.config().output_ids)
    chats = [chat for file in shard_files(options.chats) for chat in load_shard(file)]
    data = known(draft, chats[HELD_OUT : HELD_OUT + options.limit])
    test = known(
        draft, answers(pair.target, options.answers, [prompt.text for prompt in prompts()])
    )
    found = {"plain draft": right(draft, ids, test, test.hidden)}
    for age in (BLIND, *options.ages):
        correction = trained(draft, data, age, options.steps, options.seed)
        with torch.no_grad():
            guess = correction(test.hidden, beside(test, age))
        name = f"feature of age {age}" if age else "without features"
        found[name] = right(draft, ids, test, guess)
        print(f"{name:20} {found[name]:.4f}", file=sys.stderr, flush=True)
    results = {"trained_rows": len(data.hidden), "tested_rows": len(test.hidden), "right": found}
    write_report(
        options.out,
        command="python -m bench.feature.late " + " ".join(sys.argv[1:]),
        results=results,
        ratios={name: share / found["without features"] for name, share in found.items()},
        load_average=load_average,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
