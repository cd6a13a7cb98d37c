"""What drafts of the demo's target are worth on chats that none of them saw: `python -m
bench.draft_quality old=FOLDER new=FOLDER`.

The target answers the prompts of `unseen_chats.txt` by its likeliest tokens. Each draft is loaded
from its folder as a worker would load it and walks along the same answers: how often the target's
token is its likeliest, or among its likeliest; tokens that a pass of the target commits, by the
size of the tree; seconds of a pass. Left out, the folder is the demo's draft.
"""

import argparse
import os
import sys
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
from outrider.distil.start import head_of
from outrider.worker.model.load import load
from outrider.worker.model.prepare import prepare

PROMPTS = Path(__file__).with_name("unseen_chats.txt")
NODES = "8"
"""Of the trees whose tokens per pass are compared."""


def main() -> int:
    """Measure, write JSON, print the figures."""
    options, load_average = parse(), os.getloadavg()
    target = prepare(ModelSettings(uri=TARGET), user_cache(), _ignore)
    chats = answers(target, options.answers, PROMPTS.read_text(encoding="utf-8").splitlines())
    head = head_of(load(target)[1])
    longest = max(len(chat.tokens) for chat in chats) + TREE_ROOM
    found: dict[str, dict[str, Any]] = {}
    for name, folder in options.drafts:
        print(name, file=sys.stderr, flush=True)
        settings = ModelSettings(uri=f"file://{folder}", embeddings_from=TARGET)
        room = Room(min(GROUP, len(chats)), longest)
        draft = engine_of(prepare(settings, user_cache(), _ignore), Dtype.AUTO, room, None, 1)
        other = engine_of(target, Dtype.AUTO, Room(1, longest), None, 1)
        found[name] = evaluate(draft, other, chats, head, lambda *_: None)
        draft.close()
        other.close()
        print(
            f"top-1 {found[name]['top']['1']:.3f}, tokens per pass:", found[name]["tokens_per_pass"]
        )
    if options.out is not None:
        write_report(
            options.out,
            command="python -m bench.draft_quality " + " ".join(sys.argv[1:]),
            results=found,
            ratios=ratios(found),
            load_average=load_average,
        )
    return 0


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
        "--answers", type=Path, default=Path("answers-unseen"), help="folder, made if missing"
    )
    parser.add_argument("--out", type=Path, help="a report; left out: figures are printed alone")
    return parser.parse_args()


def named(text: str) -> tuple[str, Path]:
    """Parse NAME=FOLDER."""
    name, equals, folder = text.partition("=")
    if not (name and equals and folder):
        raise argparse.ArgumentTypeError(f"{text} is not NAME=FOLDER")
    return name, Path(folder).resolve()


def ratios(found: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Return what each draft is over the first."""
    first, *others = found
    of = {
        "top-1": lambda one: one["top"]["1"],
        f"tokens per pass, {NODES} nodes": lambda one: one["tokens_per_pass"][NODES],
        "seconds of a pass of 1 row": lambda one: one["pass_seconds"]["draft"]["1"],
    }
    return {
        f"{name} over {first}: {what}": value(found[name]) / value(found[first])
        for name in others
        for what, value in of.items()
    }


def _ignore(stage: str, done: int, total: int) -> None:
    """Ignore the progress of a preparation."""


if __name__ == "__main__":
    sys.exit(main())
