"""Where a decode pass of a GGUF file goes, against the bytes that it reads.

Times the layers of each kind alone, over the whole model, and whole passes of one row without and
with a context; beside them a token of llama.cpp's after as long a prompt, with flash attention and
KV in 16 bits. The ceiling is what a sum over 1 GiB reads in the same time, on as many threads.
Fetches Qwen2.5-Coder 1.5B if no file is named.

examples:
  python -m bench.pass_profile
  python -m bench.pass_profile model.gguf --threads 1 --contexts 1024 --no-peer
"""

import argparse
import asyncio
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.record.report import RESULTS, say, write_run
from bench.sides import code_pair, llama_server
from bench.sides.peer import uv
from outrider.contract import processors
from outrider.contract.files import user_cache
from outrider.contract.settings import ModelSettings
from outrider.kernels.cpu.collectives import Thread, make_barrier, share
from outrider.kernels.cpu.elementwise import Activations
from outrider.kernels.cpu.forward import apply
from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.kernels.jit.compiled import njit
from outrider.worker.checkpoints.fingerprint import ignore_progress
from outrider.worker.checkpoints.load import load
from outrider.worker.checkpoints.prepare import prepare
from outrider.worker.costs.step_timing import borrowed, chain_rows
from outrider.worker.kv.block_pool import blocks_for
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.llama import Llama, PassOptions

OUT = RESULTS / "pass_profile.json"
LAYERS = {"qkv": "act", "output": "act_context", "gates": "act", "down": "act_wide", "head": "act"}
"""Kinds of linear layers, and the buffers that they read."""
CONTEXTS = (4096, 16384)
PEER_TOKENS = 32
"""Tokens that llama.cpp writes after each prompt."""
GIBIBYTE = 1 << 30
APART = 520
"""Integers by which the sum's streams lie further apart than a power of two, at which they would
take each other's places in caches (Zen 3, one thread: 9.7 GB/s for 21 to 27)."""
ROWS = 16
"""Rows that a pass may have, as a worker's: threads share its scratch."""


class Part(NamedTuple):
    """What was timed."""

    milliseconds: float
    megabytes: float
    share: float
    """Share of what a plain sum reads in the same time."""


@njit(cache=False)
def total(values, thread):  # type: ignore[no-untyped-def]
    """Add a thread's share of integers, [4, count], as four streams: one stream reads less than
    memory can send."""
    span = share(values.shape[1], thread)
    a, b, c, d = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for i in range(span.first, span.last):
        a += values[0, i]
        b += values[1, i]
        c += values[2, i]
        d += values[3, i]
    return a + b + c + d


@njit(cache=False)
def all_layers(x, stack, out, thread):  # type: ignore[no-untyped-def]
    """Compute the layers of one kind, one after the other, of one row."""
    for layer in range(len(stack.scales)):
        apply(x, 1, stack, layer, out, thread)


def main() -> None:
    """Measure, print and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--contexts", type=int, nargs="+", default=list(CONTEXTS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--no-peer", action="store_true", help="without llama.cpp")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    load_average = os.getloadavg()
    file = options.file or code_pair.TARGET.fetch(code_pair.folder(), say)
    found = {n: profile(file.absolute(), n, options) for n in options.threads}
    for threads, parts in found.items():
        print(f"\n{file.name}, threads: {threads}\n{'':>16} {'ms':>8} {'MB':>8} of a plain sum")
        for name, part in parts.items():
            of_sum = f"{part.share:.0%}"
            print(f"{name:>16} {part.milliseconds:8.2f} {part.megabytes:8.0f} {of_sum:>8}")
    results = {
        str(threads): {name: part._asdict() for name, part in parts.items()}
        for threads, parts in found.items()
    }
    ratios = {
        f"{name}, threads {threads}": part.share
        for threads, parts in found.items()
        for name, part in parts.items()
    }
    write_run(options.out, "pass_profile", results, ratios, load_average)


def least(call: Callable[[], Any], rounds: int) -> float:
    """Return the least seconds of a call, of a few after one that may compile."""
    call()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def profile(file: Path, threads: int, options: argparse.Namespace) -> dict[str, Part]:
    """Return all parts of a pass on so many threads."""
    with ThreadPoolExecutor(threads) as pool:
        barrier = make_barrier()
        team = [Thread(barrier, number, threads) for number in range(threads)]

        def together(work: Callable[[Thread], Any]) -> float:
            """Return the least seconds in which all threads work."""
            return least(lambda: list(pool.map(work, team)), options.rounds)

        plain = np.ones((4, GIBIBYTE // 32 + APART), np.int64)
        summed = together(partial(total, plain))
        longest = max(options.contexts) + 64
        prepared = prepare(ModelSettings(uri=f"file://{file}"), user_cache(), ignore_progress)
        config, weights = load(prepared)
        kv_cache = HostKVCache(config.kv_shape, blocks_for(longest), longest, prefix_cache=False)
        model = Llama(config, weights, NumericPath.INT4, kv_cache, ROWS, PassOptions(threads))
        held, buffers = vars(model)["_weights"], vars(model)["_buffers"]
        parts, of_layers = dict[str, tuple[float, float]](), 0
        for kind, source in LAYERS.items():
            stack = getattr(held, kind)
            x = Activations(getattr(buffers, source), buffers.scales)
            outputs = np.empty((1, stack.scales.shape[1]), np.float32)
            seconds = together(partial(all_layers, x, stack, outputs))
            of_layers += stack.weights.nbytes
            parts[kind] = seconds, stack.weights.nbytes
        of_slot = kv_cache.k_t.nbytes // kv_cache.k_t.shape[2] // 64 * 2
        kv_cache.k_t[:], kv_cache.v[:] = 0.01, 0.01
        with borrowed(kv_cache) as block_table:
            contexts = (0, *options.contexts)
            for context in contexts:
                rows = chain_rows(1, context, block_table, config.vocab)
                seconds = least(partial(model.forward, rows), options.rounds)
                parts[f"pass at {context}"] = seconds, of_layers + of_slot * context
        model.close()
        summed = min(summed, together(partial(total, plain)))  # minutes differ
        rate = plain.nbytes / summed
        del plain
        if not options.no_peer:
            theirs = asyncio.run(peer_seconds(file, threads, contexts))
            for context, seconds in zip(contexts, theirs, strict=True):
                read = of_layers + of_slot // 2 * context  # its KV has 16 bits
                parts[f"llama.cpp at {context}"] = seconds, read
    return {
        name: Part(1e3 * seconds, read / 1e6, read / rate / seconds)
        for name, (seconds, read) in parts.items()
    }


async def peer_seconds(file: Path, threads: int, contexts: Sequence[int]) -> list[float]:
    """Return llama.cpp's seconds of a token after prompts of so many tokens."""
    server = llama_server.built(uv())
    longest = str(max(contexts) + 2 * PEER_TOKENS)
    every = str(processors.count())
    more = ("-c", longest, "-fa", "on", "-tb", every)
    found = []
    async with llama_server.started(server, file, threads, *more) as one:
        for context in contexts:
            say(f"llama.cpp, threads: {threads}, a prompt of {context} tokens")
            ids = 1000 + np.random.default_rng(context).integers(0, 1000, max(1, context))
            said = await one.complete(ids.tolist(), PEER_TOKENS + 1)
            found.append(said["seconds"] / said["tokens"])
    return found


if __name__ == "__main__":
    main()
