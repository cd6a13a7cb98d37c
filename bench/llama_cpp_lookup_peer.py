"""llama.cpp with and without prompt lookup, the other side of `bench.sources`: one JSON object a
line.

Runs in an environment of its own that has `llama-cpp-python` and nothing of Outrider. Seconds are
from the first token of an answer to its last, as a caller of its generator sees them.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import llama_cpp
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

CONTEXT = 2048
DRAFT_TOKENS = 10
"""What its documentation recommends for a GPU; 2 for a CPU, which loses less and gains less."""


def main() -> int:
    """Load the model, say what it is, answer until the input ends."""
    options = parse()
    lookup = LlamaPromptLookupDecoding(num_pred_tokens=options.tokens) if options.lookup else None
    model = llama_cpp.Llama(
        str(options.model),
        n_ctx=CONTEXT,
        n_threads=options.threads,
        n_threads_batch=options.threads,
        draft_model=lookup,
        verbose=False,
    )
    say(version=llama_cpp.__version__)
    for line in sys.stdin:
        asked = json.loads(line)
        say(**answer(model, asked["text"], asked["max_tokens"]))
    return 0


def parse() -> argparse.Namespace:
    """Options, all set by `bench.sources`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--lookup", action="store_true")
    parser.add_argument("--tokens", type=int, default=DRAFT_TOKENS)
    return parser.parse_args()


def answer(model: Any, text: str, max_tokens: int) -> dict[str, Any]:
    """Return the ids of one greedy answer, those after the first, and their seconds."""
    prompt = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    given = model.tokenize(prompt.encode(), add_bos=False, special=True)
    model.reset()
    ids: list[int] = []
    began = ended = 0.0
    for token in model.generate(given, temp=0.0, repeat_penalty=1.0, reset=False):
        ended = time.perf_counter()
        began = began or ended
        if token == model.token_eos() or len(ids) == max_tokens:
            break
        ids.append(token)
    return {"ids": ids, "tokens": max(1, len(ids) - 1), "seconds": max(ended - began, 1e-9)}


def say(**fields: Any) -> None:
    """Print one line for the other side."""
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    sys.exit(main())
