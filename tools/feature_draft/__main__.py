"""`python -m tools.feature_draft`: write chats, train a draft on them.

    python -m tools.feature_draft write chats --tokens 300000
    python -m tools.feature_draft train chats feature.pt --layers 29 --steps 600

Both go on where they were when they are started again, and run on one thread.
"""

import argparse
import sys
import time
from pathlib import Path

import torch
from tools.feature_draft.questions import Questions
from tools.feature_draft.shards import Chat, load_shard, save_shard, shard_files
from tools.feature_draft.start import PLAIN, Pair
from tools.feature_draft.training import Recipe, Training, check
from tools.feature_draft.writer import Writer

from outrider.kernels.cpu.numeric_kind import NumericPath

SHARD_TOKENS = 20_000


def main() -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    write = commands.add_parser("write", help="let the target write chats")
    write.add_argument("folder", type=Path)
    write.add_argument("--tokens", type=int, default=300_000)
    write.add_argument("--slots", type=int, default=96, help="chats at a time")
    write.add_argument("--dtype", type=NumericPath, default=NumericPath.INT8)
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
    options.folder.mkdir(parents=True, exist_ok=True)
    number = len(shard_files(options.folder))
    seed = options.seed * 1000 + number
    target = Pair.prepare().target
    chats: list[Chat] = []
    with torch.no_grad():
        began = time.monotonic()
        writer = Writer(target, options.dtype, options.slots, Questions(seed), seed)
        for chat in writer.write():
            chats.append(chat)
            if sum(len(one.tokens) for one in chats) >= SHARD_TOKENS:
                save_shard(options.folder / f"chats-{number:04}.npz", chats)
                number, chats = number + 1, []
                say(f"{number * SHARD_TOKENS} tokens, {time.monotonic() - began:.0f} s")
            if number * SHARD_TOKENS >= options.tokens:
                return


def train_draft(options: argparse.Namespace) -> None:
    """Train until all steps are done."""
    files = shard_files(options.folder)
    chats = [chat for file in files for chat in load_shard(file)]
    check(len(chats), options.out)
    recipe = Recipe(steps=options.steps, learning_rate=options.rate, seed=options.seed)
    notes = {
        "layers": options.layers,
        "sees_features": not options.blind,
        "chats": len(chats),
        "tokens": sum(len(chat.tokens) for chat in chats),
    }
    draft = Pair.prepare().start(options.layers, notes["sees_features"])
    Training(draft, chats, recipe, options.out, notes).run(say)


def say(line: str) -> None:
    """Print a line at once."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
