"""Outrider and llama.cpp side by side on this processor: `python -m bench.cpu_peers`.

The same model file, the same prompts, the same number of threads; the sides are asked one after the
other and alone. llama.cpp runs the file as it is (Q4_1) and as Q8_0, and its rate is that of its
own passes; Outrider's is that of whole answers, from the first token to the last; its "plain int4"
has layers in four bits. Threads of llama.cpp wait by spinning: beside other work it falls behind
far more than it would on a machine of its own, so measure on an idle one. The peer is built from
its source by uv the first time, which takes some minutes.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from bench.report import RESULTS, Prompt, Spread, median_and_range, prompts, write_report
from bench.speculation import MODES, SERVICE, Side, ask, side
from outrider.cli import processors
from outrider.cli.service_file import read_service
from outrider.contract.settings import Dtype
from outrider.operator.spec import Placement, SpeculativeService
from outrider.worker.model.source import Source

PEER = Path(__file__).parent / "llama_cpp_peer.py"
PINNED = "llama-cpp-python==0.3.36"
GREEDY = MODES["greedy"]
OURS, THEIRS = ("plain", "serial", "plain int4"), ("llama.cpp Q4_1", "llama.cpp Q8_0")


@dataclasses.dataclass(frozen=True, slots=True)
class Peer:
    """A llama.cpp process."""

    process: Process
    facts: dict[str, Any]

    async def ask(self, text: str, tokens: int) -> float:
        """Tokens a second of one answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"text": text, "max_tokens": tokens}).encode() + b"\n")
        said = await line_of(self.process)
        return float(said["tokens"] / said["seconds"])


def main() -> int:
    """Measure, write JSON and plot, print the ratios."""
    options = parse()
    load = os.getloadavg()
    measured = asyncio.run(run(options))
    ratios = all_ratios(measured["by_threads"])
    write_report(
        options.out,
        command="python -m bench.cpu_peers " + " ".join(sys.argv[1:]),
        results=measured,
        ratios=ratios,
        load_average=load,
    )
    plot(measured["by_threads"], options.out.with_suffix(".png"))
    for name, value in ratios.items():
        print(f"{name:40} {value:.3f}")
    return 0


def parse() -> argparse.Namespace:
    """Parse the options; the defaults are what docs quote."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=64)
    counts = sorted({1, processors.count()})
    parser.add_argument(
        "--threads",
        type=int,
        nargs="+",
        default=counts,
        help="of every side; all that the report is to have",
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "cpu_peers.json")
    return parser.parse_args()


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """Every number of threads, one after the other."""
    service = read_service(SERVICE)
    chosen = prompts()[: options.prompts]
    peer = environment()
    by_threads, facts = {}, {}
    for threads in options.threads:
        print(f"{threads} threads", file=sys.stderr)
        rates, facts = await side_by_side(peer, service, threads, chosen, options)
        by_threads[str(threads)] = {
            name: dataclasses.asdict(median_and_range(each)) for name, each in rates.items()
        }
    return {"by_threads": by_threads, "peer": facts}


async def side_by_side(
    peer: list[str],
    service: SpeculativeService,
    threads: int,
    chosen: list[Prompt],
    options: argparse.Namespace,
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """rates[side][repetition]: tokens a second over all prompts."""
    model = Source.parse(service.spec.target.model.uri).resolve()
    async with contextlib.AsyncExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outrider-peer-")))
        sides: dict[str, Side | Peer] = {
            "plain": await side(stack, service, "plain", None, threads),
            "serial": await side(stack, service, "serial", Placement.COLOCATED, threads),
            "plain int4": await side(stack, in_four_bits(service), "plain int4", None, threads),
        }
        for name, more in zip(THEIRS, ((), ("--requantize", scratch / "q8.gguf")), strict=True):
            command = [*peer, "--model", model, "--threads", threads, *more]
            sides[name] = await stack.enter_async_context(started([str(x) for x in command]))
        for warm in sides.values():
            await rate(warm, chosen[0], options.max_tokens)
        rates: dict[str, list[float]] = {name: [] for name in sides}
        for repetition in range(options.repetitions):
            print(f"repetition {repetition + 1} of {options.repetitions}", file=sys.stderr)
            turn = await one_repetition(sides, chosen, options.max_tokens, repetition)
            for name, found in turn.items():
                rates[name].append(found)
        last = sides[THEIRS[0]]
        assert isinstance(last, Peer)
        return rates, last.facts


def in_four_bits(service: SpeculativeService) -> SpeculativeService:
    """The service with int4 weights in its target."""
    engine = service.spec.target.engine.model_copy(update={"dtype": Dtype.INT4})
    target = service.spec.target.model_copy(update={"engine": engine})
    return service.model_copy(update={"spec": service.spec.model_copy(update={"target": target})})


async def one_repetition(
    sides: dict[str, Side | Peer], chosen: list[Prompt], tokens: int, repetition: int
) -> dict[str, float]:
    """Harmonic mean over the prompts: tokens over seconds of answers of equal length."""
    names = list(sides)
    seconds = dict.fromkeys(names, 0.0)
    for number, prompt in enumerate(chosen):
        first = (repetition + number) % len(names)
        for name in (*names[first:], *names[:first]):
            seconds[name] += 1.0 / await rate(sides[name], prompt, tokens)
    return {name: len(chosen) / total for name, total in seconds.items()}


async def rate(one: Side | Peer, prompt: Prompt, tokens: int) -> float:
    """Tokens a second of one answer after its first token."""
    if isinstance(one, Peer):
        return await one.ask(prompt.text, tokens)
    result = await ask(one, prompt, tokens, GREEDY)
    return (result.usage.completion_tokens - 1) / result.timing.decode_seconds


def environment() -> list[str]:
    """The command that runs the peer; builds what it needs, and shows how."""
    root = PEER.parents[1]
    uv = subprocess.run([root / "tools" / "bootstrap"], check=True, capture_output=True, text=True)
    command = [uv.stdout.strip(), "run", "--no-project", "--isolated", "--with", PINNED]
    command += ["--python", sys.executable, "python", "-P"]  # this folder has an operator.py
    print(f"building {PINNED} unless uv has it", file=sys.stderr)
    subprocess.run([*command, "-c", "import llama_cpp"], check=True)
    return [*command, str(PEER)]


@contextlib.asynccontextmanager
async def started(command: list[str]) -> AsyncIterator[Peer]:
    """A peer that has loaded its model."""
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    try:
        yield Peer(process, await line_of(process))
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


async def line_of(process: Process) -> dict[str, Any]:
    """Return what a peer says next; raises `SystemExit` when it is gone."""
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise SystemExit(f"llama.cpp ended with exit status {await process.wait()}")
    found: dict[str, Any] = json.loads(line)
    return found


def all_ratios(by_threads: dict[str, dict[str, dict[str, Any]]]) -> dict[str, float]:
    """Return ours over the faster of theirs."""
    ratios = {}
    for threads, found in by_threads.items():
        best = max(found[name]["median"] for name in THEIRS)
        for name in OURS:
            key = f"{name.replace(' ', '_')}_over_llama_cpp_{threads}_threads"
            ratios[key] = found[name]["median"] / best
    return ratios


def plot(by_threads: dict[str, dict[str, dict[str, Any]]], path: Path) -> None:
    """Bars of tokens per second with their ranges."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(by_threads), figsize=(9, 3.4), sharey=True, squeeze=False)
    for axis, (threads, found) in zip(axes[0], by_threads.items(), strict=True):
        for at, values in enumerate(found.values()):
            spread = Spread(**values)
            error = [[spread.median - spread.low], [spread.high - spread.median]]
            axis.bar(at, spread.median, yerr=error, width=0.6, color=f"C{at}", capsize=4)
        axis.set_xticks(range(len(found)), [name.replace(" ", "\n") for name in found])
        axis.set_title(f"{threads} threads" if threads != "1" else "1 thread")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("tokens per second")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
