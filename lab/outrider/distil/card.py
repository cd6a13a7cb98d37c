"""The model card of a draft: README.md in its folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outrider.distil.draft_folder import SERVICE
from outrider.distil.recipe import Recipe
from outrider.distil.report import PICTURE, REPORT
from outrider.distil.whole_files import write_whole

CARD = "README.md"


def write_card(folder: Path, recipe: Recipe, fields: Mapping[str, Any]) -> None:
    """Write the card of what a report says; raises `NotWritten`."""
    text = card(recipe, fields)
    write_whole(folder / CARD, lambda opened: opened.write(text.encode()))


def card(recipe: Recipe, fields: Mapping[str, Any]) -> str:
    """Return the card's text."""
    held_out, data, words = fields["held_out"], fields["data"], fields["vocabulary"]
    target, draft = fields["target"], fields["draft"]
    trees = held_out["tokens_per_pass"]
    means, training = ", ".join(f"{mean:.2f}" for mean in trees.values()), fields["training"]
    steps, more = sum(one["steps"] for one in training), data["of_other_runs"]
    others = f", and {more['tokens']:,} in {more['chats']:,} in other runs" if more["chats"] else ""
    lines = [
        f"- {source['name']}: {source['prompts']}, licence: {source['licence']}"
        for source in data["prompts"]
    ]
    sources = "\n".join(dict.fromkeys(lines))
    kept = (
        "Embedding, tokenizer and, where they are tied, head are the target's and not stored."
        if data["borrows"]
        else "Embedding and head are those of the model that it was begun as; the tokenizer is the "
        "target's."
    )
    return f"""\
# A draft for {target["uri"]}

Made by `outrider distil`. Serve it with its target: `outrider run -f {SERVICE}`.

| | |
|---|---|
| target | `{target["uri"]}`, sha256 `{target["sha256"]}` |
| `model.safetensors` | {draft["bytes"]:,} bytes, sha256 `{draft["sha256"]}` |
| begun as | {data["begun_as"]} |
| outputs | {words["outputs"]:,} token ids, {words["coverage"]:.1%} of the target's tokens |
| licence | {recipe.licence} |

{kept} Matrices are int8 with a float32 scale a row.

## Recipe

The target wrote {data["tokens"]:,} tokens in {data["chats"]:,} chats{others}, half of its answers
by its likeliest tokens, the others sampled. The layers were trained on its distributions over the
outputs, {recipe.epochs:g} times over all of them, in {steps:,} steps of
{training[0]["batch_tokens"]:,} tokens, rounds on what the draft itself wrote among them:
{recipe.rounds}. Seed {recipe.seed}.
Prompts:

{sources}

## What to expect

On {held_out["chats"]} answers of the target ({held_out["tokens"]:,} tokens) that were not trained
on, without sampling, as served in int8:

| | |
|---|---|
| the target's token is the draft's likeliest | {held_out["top"]["1"]:.3f} |
| it is among the likeliest 2, 4, 8 | {", ".join(f"{held_out['top'][n]:.3f}" for n in "248")} |
| tokens per pass of the target, trees of {", ".join(trees)} nodes | {means} |
| divergence from the target, nats | {held_out["divergence"]:.3f} |

![learning, tokens per pass, cost of a pass]({PICTURE})

All figures, and what passes cost on the machine that made them: `{REPORT}`. What lies in `work/` is
only needed to go on; the draft is complete without it.
"""
