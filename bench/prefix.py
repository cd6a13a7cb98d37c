"""Time to the first token with and without kept prefixes: `python -m bench.prefix`.

Chats of several turns below one long system prompt, as an assistant has them. Every text is checked
against the one without kept prefixes. `--redraw` only plots what was measured before.
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.batching import SERVICE
from bench.pictures import put_title
from bench.report import RESULTS, median_and_range, prompts, write_report
from bench.serial import InTurn
from outrider.cli import processors
from outrider.cli.service_file import read_service
from outrider.worker.api.text import Message

SIDES = ("kept", "computed")
ANSWER = 32
"""Tokens of each answer."""
SYSTEM_PROMPTS = 12
"""Bundled prompts that the system prompt is made of: about 250 tokens."""


def main() -> int:
    """Measure, write JSON and plot, print the ratios."""
    options = parse()
    if not options.redraw:
        measure(options)
    report = json.loads(options.out.read_text(encoding="utf-8"))
    plot(report["results"], options.out.with_suffix(".png"))
    put_title(options.out)
    for name, value in report["ratios"].items():
        print(f"{name:46} {value:.3f}")
    return 0


def measure(options: argparse.Namespace) -> None:
    """Write the JSON."""
    load = os.getloadavg()
    measured = run(options)
    ratios = {
        f"first_token_kept_vs_computed_turn_{turn}": by["kept"].median / by["computed"].median
        for turn, by in measured["first_token_seconds"].items()
    }
    write_report(
        options.out,
        command="python -m bench.prefix " + " ".join(sys.argv[1:]),
        results=measured,
        ratios=ratios,
        load_average=load,
    )


def parse() -> argparse.Namespace:
    """Parse the options; the defaults are what docs quote."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-f", "--file", type=Path, default=SERVICE)
    parser.add_argument("--chats", type=int, default=6)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--redraw", action="store_true", help="measure nothing")
    parser.add_argument("--out", type=Path, default=RESULTS / "prefix.json")
    return parser.parse_args()


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Return seconds to the first token by turn and side; both sides answer each turn."""
    service, threads = read_service(options.file), processors.count()
    engines = {side: InTurn.start(service, threads, prefix_cache=side == "kept") for side in SIDES}
    system = Message("system", "\n".join(p.text for p in prompts()[:SYSTEM_PROMPTS]))
    seconds: dict[int, dict[str, list[float]]] = {
        turn: {side: [] for side in SIDES} for turn in range(1, options.turns + 1)
    }
    cached: dict[int, list[int]] = {turn: [] for turn in seconds}
    lengths: dict[int, list[int]] = {turn: [] for turn in seconds}
    same = []
    for chat in range(options.chats):
        print(f"chat {chat + 1} of {options.chats}", file=sys.stderr)
        messages = [system]
        for turn in seconds:
            messages.append(Message("user", prompts()[(chat * 7 + turn) % 32].text))
            texts = {}
            for side in SIDES if (chat + turn) % 2 else SIDES[::-1]:
                engine = engines[side]
                (asked,) = engine.run([engine.prompt(*messages)], ANSWER, 1, speculate=True)
                seconds[turn][side].append(asked.end.timing.first_token_seconds)
                texts[side] = asked.tokens
                if side == "kept":
                    cached[turn].append(asked.end.usage.cached_prompt_tokens)
                    lengths[turn].append(asked.end.usage.prompt_tokens)
            same.append(texts["kept"] == texts["computed"])
            messages.append(Message("assistant", engine.text.decode(list(texts["kept"]))))
    return {
        "same_text": statistics.mean(same),
        "first_token_seconds": {
            turn: {side: median_and_range(values) for side, values in by.items()}
            for turn, by in seconds.items()
        },
        "cached_tokens": {turn: median_and_range(values) for turn, values in cached.items()},
        "prompt_tokens": {turn: median_and_range(values) for turn, values in lengths.items()},
    }


def plot(results: Mapping[str, Any], file: Path) -> None:
    """Time to the first token by turn, with ranges; `results` as the JSON has them."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    turns = list(results["first_token_seconds"])
    for side in SIDES:
        found = [results["first_token_seconds"][turn][side] for turn in turns]
        middle = [1e3 * f["median"] for f in found]
        low = [1e3 * (f["median"] - f["low"]) for f in found]
        high = [1e3 * (f["high"] - f["median"]) for f in found]
        axes.errorbar(turns, middle, (low, high), label=side, marker="o", capsize=3)
    axes.set_xticks(turns, [_turn(results, turn) for turn in turns])
    axes.set_xlabel("tokens of the prompt")
    axes.set_ylabel("milliseconds to the first token")
    axes.set_ylim(bottom=0)
    axes.legend(title="KV of the beginning")
    figure.savefig(file, dpi=150)


def _turn(results: Mapping[str, Any], turn: str) -> str:
    """Return what stands below a turn: medians over its chats."""
    cached, prompt = (results[name][turn]["median"] for name in ("cached_tokens", "prompt_tokens"))
    return f"turn {turn}\n{cached:.0f} of {prompt:.0f} kept"


if __name__ == "__main__":
    sys.exit(main())
