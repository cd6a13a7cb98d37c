"""`python -m tools.feature_draft`: write chats, train a draft on them.

    python -m tools.feature_draft write chats --tokens 300000
    python -m tools.feature_draft train chats feature.pt --layers 29 --steps 600

Both go on where they were when they are started again, and run on one thread.
"""

import argparse
import itertools
import sys
import time
from pathlib import Path

import torch
from tools.feature_draft.start import PLAIN, Pair

from outrider.contract.settings import Dtype
from outrider.distil.answers import LONGEST, Chats, Writer
from outrider.distil.chat_layout import ChatLayout
from outrider.distil.engine import Room, engine_of
from outrider.distil.shards import load_shard, save_shard, shard_files, written_tokens
from outrider.distil.templates import Templates
from outrider.distil.training import (
    SAVE_EVERY,
    Corpus,
    Training,
    TrainingRecipe,
    check_writable,
)
from outrider.worker.api.text import Text

SHARD_CHATS = 96
HELD_OUT = 32
"""Chats, the first ones, on which nothing is trained."""
FEATURE_WEIGHT, SPAN_SHARE = 0.2, 0.12
"""Of the loss of a draft that sees features, and of positions where it begins to see its own."""


def main() -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    write = commands.add_parser("write", help="let the target write chats")
    write.add_argument("folder", type=Path)
    write.add_argument("--tokens", type=int, default=300_000)
    write.add_argument("--slots", type=int, default=96, help="chats at a time")
    write.add_argument("--dtype", type=Dtype, default=Dtype.INT8)
    write.add_argument("--seed", type=int, default=0)
    write.set_defaults(run=write_chats)
    train = commands.add_parser("train", help="train a draft on chats")
    train.add_argument("folder", type=Path)
    train.add_argument("out", type=Path)
    train.add_argument("--layers", default=PLAIN, help="of the target, as 0,29; or plain")
    train.add_argument("--blind", action="store_true", help="without features")
    train.add_argument("--steps", type=int, default=600)
    train.add_argument("--rate", type=float, default=1e-3)
    train.add_argument("--seed", type=int, default=0)
    train.set_defaults(run=train_draft)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.run(options)
    return 0


def write_chats(options: argparse.Namespace) -> None:
    """Write shards until there are enough tokens."""
    folder, target = options.folder, Pair.prepare().target
    number = len(shard_files(folder))
    tokens = written_tokens(shard_files(folder))
    layout = ChatLayout.of(Text.load(target.tokenizer), target.config())
    begin = Chats(Templates(options.seed), layout, options.seed, held_out=0)
    engine = engine_of(target, options.dtype, Room(options.slots, LONGEST), None, 1)
    chats = Writer(engine, layout, begin, options.slots, options.seed).write(number * SHARD_CHATS)
    began = time.monotonic()
    while tokens < options.tokens:
        save_shard(folder, number, list(itertools.islice(chats, SHARD_CHATS)))
        number, tokens = number + 1, written_tokens(shard_files(folder))
        say(f"{tokens} tokens, {time.monotonic() - began:.0f} s")


def train_draft(options: argparse.Namespace) -> None:
    """Train until all steps are done."""
    chats = [chat for file in shard_files(options.folder) for chat in load_shard(file)]
    corpus = Corpus(chats[:HELD_OUT], chats[HELD_OUT:])
    corpus.check()
    check_writable(options.out)
    recipe = TrainingRecipe(
        steps=options.steps,
        learning_rate=options.rate,
        feature_weight=FEATURE_WEIGHT,
        span_share=SPAN_SHARE,
        seed=options.seed,
    )
    notes = {
        "layers": options.layers,
        "sees_features": not options.blind,
        "chats": len(chats),
        "tokens": sum(len(chat.tokens) for chat in chats),
    }
    draft = Pair.prepare().start(options.layers, notes["sees_features"])
    Training(draft, corpus, recipe, options.out, notes).run(watch)


def watch(training: Training) -> None:
    """Print what a validation found."""
    point = training.curve[-1]
    if training.step % SAVE_EVERY == 0 or training.step == training.recipe.steps:
        shown = ", ".join(f"{name} {value:.4f}" for name, value in point.items() if name != "step")
        say(f"step {training.step} of {training.recipe.steps}: {shown}")


def say(line: str) -> None:
    """Print a line at once."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
