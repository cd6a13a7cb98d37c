"""llama.cpp's greedy ids and best two logits as a side of `bench.same_ids`: one JSON object a line.

Runs in an environment of its own, with llama-cpp-python, and uses nothing of Outrider.
"""

import json
import sys
from typing import Any

import llama_cpp
import numpy as np
from llama_cpp import llama_cpp as bindings

CONTEXT = 2048
defaults = bindings.llama_model_default_params


def without_repacking() -> Any:
    """Return parameters with which blocks stay as the file has them: AMX, for which they would be
    packed anew, may be shown by a processor and still not be allowed."""
    params = defaults()
    params.use_extra_bufts = False
    return params


def main() -> int:
    """Load the file that is named, say what this is, answer until the input ends."""
    bindings.llama_model_default_params = without_repacking
    model = llama_cpp.Llama(sys.argv[1], n_ctx=CONTEXT, verbose=False)
    say(version=llama_cpp.__version__)
    for line in sys.stdin:
        asked = json.loads(line)
        prompt = model.tokenize(asked["text"].encode(), add_bos=True, special=True)
        model.reset()
        model.eval(prompt)
        ids: list[int] = []
        pairs: list[list[tuple[int, float]]] = []
        for _ in range(asked["tokens"]):
            last = llama_cpp.llama_get_logits_ith(model.ctx, -1)
            logits = np.ctypeslib.as_array(last, shape=(model.n_vocab(),))
            best = np.argsort(logits)[-2:][::-1]
            pairs.append([(int(token), float(logits[token])) for token in best])
            ids.append(pairs[-1][0][0])
            model.eval(ids[-1:])
        say(prompt=prompt, ids=ids, best=pairs)
    return 0


def say(**fields: Any) -> None:
    """Print one object."""
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    sys.exit(main())
