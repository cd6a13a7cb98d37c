"""llama.cpp as the other side of `bench.cpu_peers`: chats and prefill, one JSON object a line.

Runs in an environment of its own that has `llama-cpp-python` and nothing of Outrider. Times are
llama.cpp's own count of its decoding passes: neither sampling nor Python is held against it.
"""

import argparse
import contextlib
import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import llama_cpp

CONTEXT = 2048


def main() -> int:
    """Load the model, say what it is, answers until the input ends."""
    options = parse()
    file = options.model
    if options.requantize is not None:
        requantize(file, options.requantize)
        file = options.requantize
    model = llama_cpp.Llama(
        str(file),
        n_ctx=CONTEXT,
        n_threads=options.threads,
        n_threads_batch=options.threads,
        no_perf=False,
        verbose=False,
    )
    say(version=llama_cpp.__version__, system=llama_cpp.llama_print_system_info().decode())
    for line in sys.stdin:
        asked = json.loads(line)
        if "prompt" in asked:
            say(**prefill(model, asked["prompt"]))
        else:
            say(**answer(model, asked["text"], asked["max_tokens"]))
    return 0


def parse() -> argparse.Namespace:
    """Options, all set by `bench.cpu_peers`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--requantize", type=Path, help="write the model here as Q8_0 and use that")
    return parser.parse_args()


def requantize(source: Path, target: Path) -> None:
    """Write the model with int8 weights, as wide as the ones that Outrider computes with."""
    wanted = llama_cpp.llama_model_quantize_default_params()
    wanted.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0
    wanted.allow_requantize = True
    status = llama_cpp.llama_model_quantize(
        str(source).encode(), str(target).encode(), ctypes.byref(wanted)
    )
    if status:
        raise SystemExit(f"{source}: llama.cpp could not write it as Q8_0 (status {status})")


def answer(model: Any, text: str, max_tokens: int) -> dict[str, Any]:
    """Tokens decoded after the first and the seconds of their passes; greedy, no cached prompt."""
    model.reset()
    llama_cpp.llama_perf_context_reset(model.ctx)
    with contextlib.redirect_stdout(sys.stderr):
        said = model.create_chat_completion(
            [{"role": "user", "content": text}], max_tokens=max_tokens, temperature=0.0
        )
    passes = llama_cpp.llama_perf_context(model.ctx)
    return {
        "tokens": passes.n_eval,
        "seconds": passes.t_eval_ms / 1e3,
        "text": said["choices"][0]["message"]["content"],
    }


def prefill(model: Any, prompt: list[int]) -> dict[str, Any]:
    """Tokens of a prompt and the seconds of their passes, of which none was cached."""
    model.reset()
    llama_cpp.llama_perf_context_reset(model.ctx)
    model.eval(prompt)
    llama_cpp.llama_synchronize(model.ctx)  # times are counted when a pass is waited for
    passes = llama_cpp.llama_perf_context(model.ctx)
    return {"tokens": passes.n_p_eval, "seconds": passes.t_p_eval_ms / 1e3}


def say(**fields: Any) -> None:
    """One line to the other side."""
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    sys.exit(main())
