"""What the demo's draft guesses along its target's answers: `python -m bench.flow.record_pair`.

Writes `pair_guesses.npz`: for every position of a few greedy answers the draft's best
log-probabilities, the place among them of what the target says, and the same after the draft's best
wrong token. So a simulated tree is the real pair's along the text and one token beside it; deeper
beside the text it is drawn from what was seen one token beside it.
"""

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.flow.language import CHILDREN, PAIR, UNGUESSED, Guesses
from bench.report import prompts
from bench.serial import InTurn, colocated
from bench.sides import SERVICE
from outrider.cli.service_file import read_service
from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.api.text import Message
from outrider.worker.kv.block_pool import blocks_for
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.launch.prepare import prepare_models
from outrider.worker.model.llama import Llama
from outrider.worker.model.load import load
from outrider.worker.model.rows import prompt_rows, tree_rows

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
LONGEST = 1024
ROWS = 256


class Draft:
    """The demo's draft, over one text at a time."""

    def __init__(self) -> None:
        models = prepare_models(colocated(read_service(SERVICE), 1))
        assert models.colocated is not None
        config, weights = load(models.colocated)
        ids = config.output_ids or range(config.vocab)
        self._ids = np.array(ids, np.int32)
        self._share = np.log(config.output_share)
        self._kv_cache = HostKVCache(
            config.kv_shape, blocks_for(LONGEST), LONGEST, prefix_cache=False
        )
        self._model = Llama(config, weights, NumericPath.FP32, self._kv_cache, ROWS)

    def guesses(self, text: Ints, begin: int) -> Guesses:
        """Return what it guesses from position `begin` of a text on."""
        table = self._kv_cache.admit(np.zeros(0, np.int32), LONGEST)
        assert table is not None
        for first in range(0, begin, ROWS):
            chunk = text[first : min(begin, first + ROWS)]
            self._model.forward(prompt_rows(chunk, first, table, wants_output=True))
        rank, on_path, off_path = [], [], []
        for position in range(begin, len(text) - 1):
            rows = prompt_rows(text[position : position + 1], position, table, wants_output=True)
            tokens, logprobs = self._best(self._model.forward(rows))
            found = np.flatnonzero(tokens == text[position + 1])
            rank.append(int(found[0]) if len(found) else UNGUESSED)
            on_path.append(logprobs)
            wrong = tokens[tokens != text[position + 1]][:1]
            seen = np.array([position + 1], np.int32)
            beside = np.array([[position + 1]], np.int32)
            rows = tree_rows(wrong, seen, table, seen, beside, np.ones(1, np.int32))
            off_path.append(self._best(self._model.forward(rows))[1])
        self._kv_cache.free(table)
        return Guesses(np.array(rank, np.int8), np.array(on_path), np.array(off_path))

    def _best(self, logits: Floats) -> tuple[Ints, Floats]:
        """Return its best tokens after one row and their log-probabilities, falling."""
        row = logits[0, : len(self._ids)].astype(np.float64)
        scores = row - row.max() - np.log(np.exp(row - row.max()).sum()) + self._share
        best = np.argsort(-scores, kind="stable")[:CHILDREN]
        return self._ids[best], scores[best].astype(np.float32)


def main() -> None:
    """Record and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=160, help="of each answer")
    parser.add_argument("--out", type=Path, default=PAIR)
    options = parser.parse_args()
    target = InTurn.start(read_service(SERVICE), 1)
    asked = prompts()[:: max(1, len(prompts()) // options.answers)][: options.answers]
    given = [target.prompt(Message("user", one.text)) for one in asked]
    answers = target.run(given, options.tokens, at_once=1, speculate=True)
    draft = Draft()
    found = [
        draft.guesses(np.concatenate([prompt, np.array(answer.tokens, np.int32)]), len(prompt) - 1)
        for prompt, answer in zip(given, answers, strict=True)
    ]
    rank, on_path, off_path = (np.concatenate(column) for column in zip(*found, strict=True))
    np.savez_compressed(
        options.out,
        rank=rank,
        on_path=on_path.astype(np.float16),
        off_path=off_path.astype(np.float16),
    )
    print(f"{len(rank)} positions; first guess right in {(rank == 0).mean():.2f} of them")
    print(
        f"one of {CHILDREN} right in {(rank >= 0).mean():.2f}; {options.out.stat().st_size} bytes"
    )


if __name__ == "__main__":
    main()
