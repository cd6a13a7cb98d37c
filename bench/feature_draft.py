"""Drafts that see the target's features beside the plain draft: `python -m bench.feature_draft`.

The drafts come from `python -m tools.feature_draft train`. All see the same answers of the target
to the bundled prompts: how often each is right, by how far its last true feature lies back; tokens
that a pass of the target commits, with trees that are drafted anew after each commit and with trees
that are drafted ahead; bytes on the link; seconds of a pass.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tools.feature_draft.start import PLAIN, Pair

from bench.feature.ages import right_by_age
from bench.feature.answers import answers
from bench.feature.costs import pass_seconds
from bench.feature.growing import Guesser
from bench.feature.rounds import ROWS, Ahead, Tally, draft_ahead, draft_anew, first_root
from bench.report import prompts, write_report
from outrider.distil.shards import ANSWERED, Chat

AGES = 6
PASSES_AHEAD = (2, 4)
"""Of the draft while the target makes one."""


def main() -> int:
    """Measure, write JSON, print the ratios."""
    options = parse()
    torch.set_num_threads(1)
    load_average = os.getloadavg()
    pair = Pair.prepare()
    chats = answers(pair.target, options.answers, [prompt.text for prompt in prompts()])
    drafts = {}
    for name, file in {PLAIN: None, **dict(options.drafts)}.items():
        print(name, file=sys.stderr, flush=True)
        kept = options.answers.with_name(f"{options.answers.stem}-{name}-{options.tokens}.json")
        if not kept.exists():
            one, notes = guesser(pair, file)
            kept.write_text(
                json.dumps(notes | measured(one, chats, options.tokens)), encoding="utf-8"
            )
        drafts[name] = json.loads(kept.read_text(encoding="utf-8"))
    if options.out is None:
        return 0
    costs = {"seconds_of_a_pass": pass_seconds(pair, (1, 2))} if options.costs else {}
    write_report(
        options.out,
        command="python -m bench.feature_draft " + " ".join(sys.argv[1:]),
        results={"drafts": drafts} | costs,
        ratios=ratios(drafts),
        load_average=load_average,
    )
    for name, value in json.loads(options.out.read_text(encoding="utf-8"))["ratios"].items():
        print(f"{name:60} {value:.3f}")
    return 0


def parse() -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "drafts", nargs="*", type=lambda text: text.split("=", 1), metavar="NAME=FILE"
    )
    parser.add_argument(
        "--answers",
        type=Path,
        default=Path("answers"),
        help="folder, made if missing; each draft's figures are kept beside it",
    )
    parser.add_argument("--tokens", type=int, default=64, help="of each answer, for trees")
    parser.add_argument("--costs", action="store_true", help="time passes, too")
    parser.add_argument("--out", type=Path, help="a report; left out: only the drafts' figures")
    return parser.parse_args()


def shortened(chat: Chat, tokens: int) -> Chat:
    """Return the chat with so many tokens of its answer at most."""
    end = first_root(chat) + 1 + tokens
    return Chat(chat.tokens[:end], chat.writers[:end], chat.features[: end - 1])


def guesser(pair: Pair, file: str | None) -> tuple[Guesser, dict[str, Any]]:
    """Return a draft with the plain draft's outputs, and what its checkpoint says of it; None: the
    plain draft itself."""
    config, notes = pair.draft.config(), dict[str, Any]()
    if file is None:
        draft = pair.start(PLAIN, sees_features=False)
    else:
        draft, notes = pair.trained(Path(file))
    ids = np.array(config.output_ids, np.int32)
    return Guesser(draft.eval(), ids, config.output_share), notes


@torch.no_grad()
def measured(one: Guesser, chats: list[Chat], tokens: int) -> dict[str, Any]:
    """Return the figures of one draft; trees are of `tokens` tokens of each answer."""
    found: dict[str, Any] = {
        "parameters": sum(p.numel() for p in one.draft.parameters()),
        "right_by_age": np.concatenate([right_by_age(one, chat, AGES) for chat in chats], axis=1)
        .mean(axis=1)
        .tolist(),
    }
    print("right by age:", found["right_by_age"], file=sys.stderr, flush=True)
    found["tokens_of_ages"] = sum(int((chat.writers == ANSWERED).sum()) for chat in chats)
    chats = [shortened(chat, tokens) for chat in chats]
    anew = Tally()
    one.together(draft_anew(one, chat, anew) for chat in chats)
    found[f"anew_{ROWS}_nodes"] = anew.figures()
    for passes in PASSES_AHEAD:
        ahead = Tally()
        one.together(draft_ahead(one, chat, Ahead(passes), ahead) for chat in chats)
        found[f"ahead_{passes}_passes"] = ahead.figures()
    return found


def ratios(drafts: dict[str, Any]) -> dict[str, float]:
    """Return tokens per pass of each draft, over the plain draft's."""
    found = {}
    for name, figures in drafts.items():
        for way, tally in figures.items():
            if isinstance(tally, dict) and "tokens_per_pass" in tally and name != PLAIN:
                plain = drafts[PLAIN][way]["tokens_per_pass"]
                found[f"{name}_tokens_per_pass_{way}"] = tally["tokens_per_pass"] / plain
    return found


if __name__ == "__main__":
    sys.exit(main())
