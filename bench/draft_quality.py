"""What drafts of the demo's target are worth on chats that none of them saw: `python -m
bench.draft_quality old=FOLDER new=FOLDER`.

The target answers the prompts of each set by its likeliest tokens. Each draft is loaded from its
folder as a worker would load it and walks along the same answers: how often the target's token is
its likeliest, or among its likeliest; tokens that a pass of the target commits, by the size of the
tree; seconds of a pass. Left out, the folder is the demo's draft.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.feature_draft.start import DRAFT, TARGET

from bench.feature.answers import answers
from bench.report import write_report
from outrider.contract.settings import Dtype, ModelSettings
from outrider.contract.user_cache import user_cache
from outrider.distil.distillation import TREE_ROOM
from outrider.distil.engine import Room, engine_of
from outrider.distil.evaluation import GROUP, evaluate
from outrider.distil.shards import Chat
from outrider.distil.start import head_of
from outrider.worker.model.load import load
from outrider.worker.model.prepare import prepare
from outrider.worker.model.prepared import PreparedModel

SETS = ("unseen_chats", "blind_chats")
"""Files of prompts. The second was written without sight of the first, and of the prompts that the
demo's draft learnt from."""
NODES = "8"
"""Of the trees whose tokens per pass are compared."""


def main() -> int:
    """Measure, write JSON, print the figures."""
    options, load_average = parse(), os.getloadavg()
    target = prepare(ModelSettings(uri=TARGET), user_cache(), _ignore)
    found: dict[str, dict[str, Any]] = {}
    for one in SETS:
        prompts = Path(__file__).with_name(f"{one}.txt").read_text(encoding="utf-8").splitlines()
        chats = answers(target, options.answers / one, prompts)
        found[one] = {name: quality(target, folder, chats) for name, folder in options.drafts}
        for name, figures in found[one].items():
            trees = figures["tokens_per_pass"]
            print(f"{one}, {name}: top-1 {figures['top']['1']:.3f}, tokens per pass: {trees}")
    if options.out is not None:
        write_report(
            options.out,
            command="python -m bench.draft_quality " + " ".join(sys.argv[1:]),
            results=found,
            ratios={of: ratio for one in SETS for of, ratio in ratios(one, found[one]).items()},
            load_average=load_average,
        )
    return 0


def quality(target: PreparedModel, folder: Path, chats: Sequence[Chat]) -> dict[str, Any]:
    """Return all figures of the draft in a folder."""
    print(folder.name, file=sys.stderr, flush=True)
    longest = max(len(chat.tokens) for chat in chats) + TREE_ROOM
    settings = ModelSettings(uri=f"file://{folder}", embeddings_from=TARGET)
    room = Room(min(GROUP, len(chats)), longest)
    draft = engine_of(prepare(settings, user_cache(), _ignore), Dtype.AUTO, room, None, 1)
    other = engine_of(target, Dtype.AUTO, Room(1, longest), None, 1)
    try:
        return evaluate(draft, other, chats, head_of(load(target)[1]), lambda *_: None)
    finally:
        draft.close()
        other.close()


def parse() -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument(
        "drafts",
        nargs="*",
        type=named,
        metavar="NAME=FOLDER",
        default=[("demo", Path(DRAFT.removeprefix("file://")))],
    )
    parser.add_argument(
        "--answers", type=Path, default=Path("answers"), help="folder, made if missing"
    )
    parser.add_argument("--out", type=Path, help="a report; left out: figures are printed alone")
    return parser.parse_args()


def named(text: str) -> tuple[str, Path]:
    """Parse NAME=FOLDER."""
    name, equals, folder = text.partition("=")
    if not (name and equals and folder):
        raise argparse.ArgumentTypeError(f"{text} is not NAME=FOLDER")
    return name, Path(folder).resolve()


def ratios(chats: str, found: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Return what each draft is over the first, on one set of chats."""
    first, *others = found
    of = {
        "top-1": lambda one: one["top"]["1"],
        f"tokens per pass, {NODES} nodes": lambda one: one["tokens_per_pass"][NODES],
        "seconds of a pass of 1 row": lambda one: one["pass_seconds"]["draft"]["1"],
    }
    return {
        f"{chats}, {name} over {first}: {what}": value(found[name]) / value(found[first])
        for name in others
        for what, value in of.items()
    }


def _ignore(stage: str, done: int, total: int) -> None:
    """Ignore the progress of a preparation."""


if __name__ == "__main__":
    sys.exit(main())
