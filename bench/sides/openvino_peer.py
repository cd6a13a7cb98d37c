"""OpenVINO GenAI as a side of a benchmark: one JSON object a line.

Runs in an environment of its own that has `openvino-genai` and nothing of Outrider. It reads GGUF
files itself. Seconds are from the first token that a caller's streamer gets to the last; those of
the prompt, until the first.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import openvino_genai
from openvino import Tensor

DRAFT_TOKENS, LOOKUP_TOKENS, NGRAM = 5, 10, 3
"""Proposed a pass by the draft, and by the prompt's own text; tokens that have to match there."""


class Moments(openvino_genai.StreamerBase):  # type: ignore[misc]
    """When tokens came, and how many."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[float, int]] = []

    def write(self, token: int | list[int]) -> Any:
        """Take a token, or several of one pass."""
        tokens = len(token) if isinstance(token, list) else 1
        self.seen.append((time.perf_counter(), tokens))
        return openvino_genai.StreamingStatus.RUNNING

    def end(self) -> None:
        """Take nothing more."""


def main() -> int:
    """Load the models, say what this is, answer until the input ends."""
    options = parse()
    settings = {"INFERENCE_NUM_THREADS": options.threads, "PERFORMANCE_HINT": "LATENCY"}
    ways: dict[str, dict[str, Any]] = {"plain": {}}
    if options.lookup:
        ways["lookup"] = {"prompt_lookup": True}
    if options.draft is not None:
        # Drafts are read from folders of OpenVINO's own format alone; this writes one beside it.
        openvino_genai.LLMPipeline(str(options.draft), "CPU", enable_save_ov_model=True)
        draft = openvino_genai.draft_model(str(options.draft.parent), "CPU", **settings)
        ways["draft"] = {"draft_model": draft}
    proposes = {
        "plain": {},
        "draft": {"num_assistant_tokens": DRAFT_TOKENS},
        "lookup": {"num_assistant_tokens": LOOKUP_TOKENS, "max_ngram_size": NGRAM},
    }
    pipelines = {
        way: openvino_genai.LLMPipeline(str(options.model), "CPU", **more, **settings)
        for way, more in ways.items()
    }
    say(version=openvino_genai.__version__)
    for line in sys.stdin:
        asked = json.loads(line)
        wanted = openvino_genai.GenerationConfig(
            max_new_tokens=asked["max_tokens"],
            do_sample=False,
            **proposes[asked["way"]],
        )
        moments = Moments()
        prompt = np.array([asked["prompt"]])
        given = openvino_genai.TokenizedInputs(Tensor(prompt), Tensor(np.ones_like(prompt)))
        began = time.perf_counter()
        said = pipelines[asked["way"]].generate(given, wanted, moments)
        first, *rest = moments.seen
        say(
            tokens=sum(tokens for _, tokens in rest),
            seconds=rest[-1][0] - first[0] if rest else 0.0,
            prompt_seconds=first[0] - began,
            ids=list(said.tokens[0]),
        )
    return 0


def parse() -> argparse.Namespace:
    """Parse the options, all set by `bench.peers` and `bench.pairs`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--draft", type=Path, help="left out: there is no way `draft`")
    parser.add_argument("--lookup", action="store_true", help="also with the prompt's own text")
    parser.add_argument("--threads", type=int, required=True)
    return parser.parse_args()


def say(**fields: Any) -> None:
    """Print one line for the other side."""
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    sys.exit(main())
