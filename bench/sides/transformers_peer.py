"""Hugging Face transformers as a side of `bench.peers`: one JSON object a line.

Runs in Outrider's own environment, which has it, and uses nothing of Outrider. Seconds are from the
first tokens that a caller's streamer gets to the last.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.generation.streamers import BaseStreamer

DRAFT_TOKENS, LOOKUP_TOKENS = 5, 10
"""Proposed a pass by the draft, and by the prompt's own text."""


class Moments(BaseStreamer):
    """When tokens came, and how many."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, int]] = []

    def put(self, value: torch.Tensor) -> None:
        """Take tokens; those of the prompt come first."""
        self.seen.append((time.perf_counter(), value.numel()))

    def end(self) -> None:
        """Take nothing more."""


def main() -> int:
    """Load the models, say what this is, answer until the input ends."""
    options = parse()
    torch.set_num_threads(options.threads)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    target, draft = (loaded(file) for file in (options.model, options.draft))
    draft.generation_config.num_assistant_tokens = DRAFT_TOKENS
    draft.generation_config.num_assistant_tokens_schedule = "constant"
    draft.generation_config.assistant_confidence_threshold = 0.0
    ways: dict[str, dict[str, Any]] = {
        "plain": {},
        "draft": {"assistant_model": draft},
        "lookup": {"prompt_lookup_num_tokens": LOOKUP_TOKENS},
    }
    say(version=transformers.__version__, torch=torch.__version__)
    for line in sys.stdin:
        asked = json.loads(line)
        given = torch.tensor([asked["prompt"]])
        moments = Moments()
        with torch.inference_mode():
            ids = target.generate(
                given,
                attention_mask=torch.ones_like(given),
                **ways[asked["way"]],
                max_new_tokens=asked["max_tokens"],
                do_sample=False,
                streamer=moments,
            )
        first, *rest = moments.seen[1:]  # the prompt's come first
        seconds = rest[-1][0] - first[0] if rest else 0.0
        say(
            tokens=sum(tokens for _, tokens in rest),
            seconds=seconds,
            ids=ids[0, given.shape[1] :].tolist(),
        )
    return 0


def loaded(file: Path) -> Any:
    """Return a model out of its GGUF file, in bf16."""
    return transformers.AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.bfloat16
    ).eval()


def parse() -> argparse.Namespace:
    """Parse the options, all set by `bench.peers`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--draft", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    return parser.parse_args()


def say(**fields: Any) -> None:
    """Print one line for the other side."""
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    sys.exit(main())
