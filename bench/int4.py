"""int4 weights beside int8 on this processor: passes, text, and a draft: `python -m bench.int4`.

Passes of both take turns. Text is measured as the mean negative log-likelihood of the pages of
decisions, in nats a token, by every path. Draft tokens are those of a draft that alone is on a
path, under an int8 target. `bench.int4_torch` is about torch's own kernels.
"""

import argparse
import dataclasses
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.batching import SERVICE
from bench.report import RESULTS, Spread, median_and_range, prompts, write_report
from bench.serial import InTurn, colocated
from outrider.cli.service_file import read_service
from outrider.contract.settings import Dtype
from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.api.text import Message, Text
from outrider.worker.kv.block_pool import blocks_for
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.launch.prepare import prepare_models
from outrider.worker.model.llama import Llama
from outrider.worker.model.load import load
from outrider.worker.model.prepared import PreparedModel
from outrider.worker.model.rows import prompt_rows
from outrider.worker.model.step_timing import borrowed, chain_rows

Int32 = NDArray[np.int32]
PAGES = sorted(Path("docs/decisions").glob("*.md"))
"""Decisions, for they change least; as many as hold `--tokens`."""
SIDES = (NumericPath.INT8, NumericPath.INT4)
ROWS = (1, 4, 8, 16)
CHUNK = 64
"""Rows of one pass over a page."""
CONTEXT = 512
"""Tokens after which a page begins anew."""
PASSES = 9
"""Of which each side's turn takes the fastest: other work on the machine only ever adds."""


def main() -> int:
    """Measure, write JSON, print the ratios."""
    options = parse()
    load_average = os.getloadavg()
    service = read_service(SERVICE)
    own = prepare_models(colocated(service, 1)).own
    results = {
        "pass_ms": passes(own, options.repetitions),
        "text": text_of(own, options.tokens),
        "draft_hits": draft_hits(options),
    }
    write_report(
        options.out,
        command="python -m bench.int4 " + " ".join(sys.argv[1:]),
        results=results,
        ratios=(found := ratios(results)),
        load_average=load_average,
    )
    for name, value in found.items():
        print(f"{name:40} {value:.3f}")
    return 0


def parse() -> argparse.Namespace:
    """Parse the options; the defaults are what docs quote."""
    parser = argparse.ArgumentParser(prog="python -m bench.int4", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--tokens", type=int, default=3072, help="of the pages")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--out", type=Path, default=RESULTS / "int4.json")
    return parser.parse_args()


def model_of(own: PreparedModel, path: NumericPath) -> Llama:
    """The whole model on one path and one thread."""
    config, weights = load(own)
    kv_cache = HostKVCache(config.kv_shape, blocks_for(CONTEXT), CONTEXT)
    return Llama(config, weights, path, kv_cache, CHUNK)


def passes(own: PreparedModel, repetitions: int) -> dict[str, dict[int, Spread]]:
    """Return milliseconds of whole passes by path and rows, the paths alternating."""
    models = {side: model_of(own, side) for side in SIDES}
    times: dict[str, dict[int, list[float]]] = {s: {n: [] for n in ROWS} for s in SIDES}
    for _ in range(repetitions):
        for rows in ROWS:
            for side, model in models.items():
                times[side][rows].append(pass_ms(model, rows))
    for model in models.values():
        model.close()
    return {s: {n: median_and_range(v) for n, v in by.items()} for s, by in times.items()}


def pass_ms(model: Llama, rows: int) -> float:
    """Least milliseconds of a few passes."""
    with borrowed(model.kv_cache) as block_table:
        made = chain_rows(rows, 2 * CHUNK, block_table, model.config.vocab)
        model.forward(made)
        times = []
        for _ in range(PASSES):
            start = time.perf_counter()
            model.forward(made)
            times.append(1e3 * (time.perf_counter() - start))
    return min(times)


def text_of(own: PreparedModel, tokens: int) -> dict[str, dict[str, float]]:
    """Nats a token by path, what it has more than fp32's, and how often the likeliest is fp32's."""
    text = Text.load(own.tokenizer)
    ids = np.concatenate([text.encode(page.read_text(encoding="utf-8")) for page in PAGES])
    found = {path: nats(own, path, ids[:tokens].astype(np.int32)) for path in NumericPath}
    exact, likeliest = found[NumericPath.FP32]
    return {
        path: {
            "nats_a_token": float(each.mean()),
            "more_than_fp32": float((each - exact).mean()),
            "standard_error": float((each - exact).std() / len(each) ** 0.5),
            "same_likeliest": float((best == likeliest).mean()),
        }
        for path, (each, best) in found.items()
    }


def nats(
    own: PreparedModel, path: NumericPath, ids: Int32
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """-log p of every token after the first of each context, and the likeliest in its place."""
    model = model_of(own, path)
    losses, best = [], []
    for begin in range(0, len(ids) - 1, CONTEXT):
        for logits, following in read(model, ids[begin : begin + CONTEXT]):
            shifted = logits.astype(np.float64)
            shifted -= shifted.max(axis=1, keepdims=True)
            taken = np.take_along_axis(shifted, following[:, None].astype(np.int64), 1)[:, 0]
            losses.append(np.log(np.exp(shifted).sum(axis=1)) - taken)
            best.append(shifted.argmax(axis=1))
    model.close()
    return np.concatenate(losses), np.concatenate(best)


def read(model: Llama, ids: Int32) -> Iterator[tuple[NDArray[np.float32], Int32]]:
    """Yield logits [n, outputs] and the tokens that followed, a chunk at a time."""
    with borrowed(model.kv_cache) as block_table:
        for at in range(0, len(ids) - 1, CHUNK):
            rows = prompt_rows(ids[at : at + CHUNK], at, block_table, False)
            every = np.arange(rows.count, dtype=np.int32)
            following = ids[at + 1 : at + 1 + CHUNK]
            logits = model.forward(dataclasses.replace(rows, outputs=every))
            yield logits[: len(following)], following


def draft_hits(options: argparse.Namespace) -> dict[str, float]:
    """Share of an int8 target's tokens that the draft has as its likeliest, by the draft's path.

    Of its first draft tokens behind the true text: what a service reaches follows times, too.
    """
    settings = colocated(read_service(SERVICE), 1)
    model = dataclasses.replace(settings.model, dtype=Dtype.INT8)
    engine = InTurn.start(read_service(SERVICE), 1, model=model)
    asked = [engine.prompt(Message("user", p.text)) for p in prompts()[: options.prompts]]
    answers = engine.run(asked, options.max_tokens, 1, speculate=False)
    draft = prepare_models(settings).colocated
    assert draft is not None
    found = {}
    for path in NumericPath:
        guesser = model_of(draft, path)
        outputs = np.array(guesser.config.output_ids or range(guesser.config.vocab))
        right = []
        for prompt, answer in zip(asked, answers, strict=True):
            ids = np.concatenate([prompt, np.array(answer.tokens, np.int32)])
            best = [outputs[logits.argmax(axis=1)] for logits, _ in read(guesser, ids)]
            right.append((np.concatenate(best) == ids[1:])[len(prompt) - 1 :])
        guesser.close()
        found[str(path)] = float(np.concatenate(right).mean())
    return found


def ratios(results: dict[str, Any]) -> dict[str, float]:
    """Return what int8 takes over what int4 takes, and hits of an int4 draft over int8's."""
    eight, four = (results["pass_ms"][side] for side in SIDES)
    found = {f"int8_over_int4_{n}_rows": eight[n].median / four[n].median for n in ROWS}
    hits = results["draft_hits"]
    found["draft_hits_int4_over_int8"] = hits["int4"] / hits["int8"]
    return found


if __name__ == "__main__":
    sys.exit(main())
