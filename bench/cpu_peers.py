"""Outrider and llama.cpp side by side on this processor: `python -m bench.cpu_peers`.

The same model file, the same prompts, the same number of threads; the sides are asked one after the
other and alone. Decoding is timed over chats, prefill over one prompt of 512 tokens, none of them
cached. llama.cpp runs the file as it is (Q4_1) and as Q8_0, and its rates are those of its own
passes; Outrider's are those of whole answers: from the first token to the last, and from the begin
to the first token. Its "int4" sides have target layers in four bits. Threads of llama.cpp wait by
spinning: beside other work it falls behind far more than it would on a machine of its own, so
measure on an idle one. The peer is built from its source by uv the first time, which takes some
minutes.
"""

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from bench import peer
from bench.pictures import put_title
from bench.report import RESULTS, Prompt, Spread, median_and_range, prompts, write_report
from bench.sides import MODES, SERVICE, Service, started, with_engine
from bench.uv import uv
from outrider.cli import processors
from outrider.cli.service_file import read_service
from outrider.cli.trial import Arrangement
from outrider.contract.settings import Dtype
from outrider.operator.spec import Placement, SpeculativeService
from outrider.worker.model.source import Source

PEER = Path(__file__).parent / "llama_cpp_peer.py"
PINNED = "llama-cpp-python==0.3.36"
GREEDY = MODES["greedy"]
OURS, THEIRS = (
    ("plain", "serial", "plain int4", "serial int4"),
    ("llama.cpp Q4_1", "llama.cpp Q8_0"),
)
PREFILL_TOKENS = 512
DECODE, PREFILL = "decode", "prefill"
"""What is timed."""


Name = TypeVar("Name")


class Timed(Protocol):
    """One side."""

    async def decode(self, prompt: Prompt, tokens: int) -> float:
        """Return tokens a second of one answer after its first token."""

    async def prefill(self, prompt: Sequence[int]) -> float:
        """Return tokens a second of one prompt."""


@dataclass(frozen=True, slots=True)
class Ours:
    """A service of this build."""

    service: Service

    async def decode(self, prompt: Prompt, tokens: int) -> float:
        """Return the rate from the first token of an answer to its last."""
        answer = await self.service.ask(prompt, tokens, GREEDY)
        return answer.tokens / answer.seconds

    async def prefill(self, prompt: Sequence[int]) -> float:
        """Return the rate up to the first token, which takes sampling and the host's work too."""
        timing = (await self.service.result(prompt, 1, GREEDY)).timing
        return len(prompt) / (timing.first_token_seconds - timing.queued_seconds)


@dataclass(frozen=True, slots=True)
class Theirs:
    """A llama.cpp process."""

    peer: peer.Peer

    async def decode(self, prompt: Prompt, tokens: int) -> float:
        """Return the rate of the passes of one answer."""
        said = await self.peer.ask(text=prompt.text, max_tokens=tokens)
        return float(said["tokens"] / said["seconds"])

    async def prefill(self, prompt: Sequence[int]) -> float:
        """Return the rate of the passes of one prompt."""
        said = await self.peer.ask(prompt=list(prompt))
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
    put_title(options.out)
    for name, value in ratios.items():
        print(f"{name:40} {value:.3f}")
    return 0


def parse() -> argparse.Namespace:
    """Parse the options; the defaults are what docs quote."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--prefill-tokens", type=int, default=PREFILL_TOKENS)
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
    service = without_prefix_cache(read_service(SERVICE))
    chosen = prompts()[: options.prompts]
    command = environment()
    by_threads, facts = {}, {}
    for threads in options.threads:
        print(f"{threads} threads", file=sys.stderr)
        async with contextlib.AsyncExitStack() as stack:
            ours = await our_sides(stack, service, threads)
            peers = await their_sides(stack, command, service, threads)
            long = await long_prompt(ours["plain"], options.prefill_tokens)
            sides: dict[str, Timed] = {name: Ours(one) for name, one in ours.items()}
            sides |= {name: Theirs(one) for name, one in peers.items()}
            rates = await repeat(sides, chosen, long, options)
        by_threads[str(threads)] = {
            what: {name: asdict(median_and_range(each)) for name, each in found.items()}
            for what, found in rates.items()
        }
        facts = dict(peers[THEIRS[0]].facts)
    return {"by_threads": by_threads, "prefill_tokens": options.prefill_tokens, "peer": facts}


async def our_sides(
    stack: contextlib.AsyncExitStack, service: SpeculativeService, threads: int
) -> dict[str, Service]:
    """Start the sides of this build."""
    sides = {}
    for name in OURS:
        placement = Placement.COLOCATED if name.startswith("serial") else None
        kind = in_four_bits(service) if name.endswith("int4") else service
        sides[name] = await started(stack, kind, name, Arrangement(placement, threads))
    return sides


async def their_sides(
    stack: contextlib.AsyncExitStack, command: list[str], service: SpeculativeService, threads: int
) -> dict[str, peer.Peer]:
    """Start llama.cpp with the model's file, and with one of eight bits made of it."""
    model = Source.parse(service.spec.target.model.uri).resolve()
    scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outrider-peer-")))
    options: dict[str, tuple[str | Path, ...]] = {
        THEIRS[0]: (),
        THEIRS[1]: ("--requantize", scratch / "q8.gguf"),
    }
    own = ("--model", model, "--threads", str(threads))
    return {
        name: await stack.enter_async_context(peer.started(name, [*command, *own, *more]))
        for name, more in options.items()
    }


def without_prefix_cache(service: SpeculativeService) -> SpeculativeService:
    """The service with a target that computes every prompt."""
    return with_engine(service, prefix_cache=False)


def in_four_bits(service: SpeculativeService) -> SpeculativeService:
    """The service with int4 weights in its target."""
    return with_engine(service, dtype=Dtype.INT4)


async def long_prompt(service: Service, tokens: int) -> tuple[int, ...]:
    """Return the first ids of all chat prompts together."""
    ids = await service.client.tokenize("\n".join(prompt.text for prompt in prompts()))
    if len(ids) < tokens:
        raise SystemExit(f"--prefill-tokens {tokens}: the prompts have {len(ids)} together")
    return ids[:tokens]


async def repeat(
    sides: Mapping[str, Timed],
    chosen: Sequence[Prompt],
    long: Sequence[int],
    options: argparse.Namespace,
) -> dict[str, dict[str, list[float]]]:
    """rates[what][side][repetition]: tokens a second, after one round that warms up."""
    for warm in sides.values():
        await warm.decode(chosen[0], options.max_tokens)
        await warm.prefill(long)
    rates: dict[str, dict[str, list[float]]] = {
        what: {name: [] for name in sides} for what in (DECODE, PREFILL)
    }
    for repetition in range(options.repetitions):
        print(f"repetition {repetition + 1} of {options.repetitions}", file=sys.stderr)
        turn = await one_repetition(sides, chosen, options.max_tokens, repetition)
        for name in turns(list(sides), repetition):
            rates[DECODE][name].append(turn[name])
            rates[PREFILL][name].append(await sides[name].prefill(long))
    return rates


async def one_repetition(
    sides: Mapping[str, Timed], chosen: Sequence[Prompt], tokens: int, repetition: int
) -> dict[str, float]:
    """Harmonic mean over the prompts: tokens over seconds of answers of equal length."""
    seconds = dict.fromkeys(sides, 0.0)
    for number, prompt in enumerate(chosen):
        for name in turns(list(sides), repetition + number):
            seconds[name] += 1.0 / await sides[name].decode(prompt, tokens)
    return {name: len(chosen) / total for name, total in seconds.items()}


def turns(names: list[Name], number: int) -> list[Name]:
    """Return the names from another first one at each number."""
    first = number % len(names)
    return [*names[first:], *names[:first]]


def environment() -> list[str]:
    """The command that runs the peer; builds what it needs, and shows how."""
    command = [uv(), "run", "--no-project", "--isolated", "--with", PINNED]
    command += ["--python", sys.executable, "python", "-P"]  # this folder has an operator.py
    print(f"building {PINNED} unless uv has it", file=sys.stderr)
    subprocess.run([*command, "-c", "import llama_cpp"], check=True)
    return [*command, str(PEER)]


def all_ratios(by_threads: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, float]:
    """Return ours over the faster of theirs."""
    ratios = {}
    for threads, found in by_threads.items():
        for what, rates in found.items():
            best = max(rates[name]["median"] for name in THEIRS)
            for name in OURS:
                side = name.replace(" ", "_") + ("" if what == DECODE else f"_{what}")
                ratios[f"{side}_over_llama_cpp_{threads}_threads"] = rates[name]["median"] / best
    return ratios


def plot(by_threads: Mapping[str, Mapping[str, Mapping[str, Any]]], path: Path) -> None:
    """Bars of tokens per second with their ranges: decoding above, prefill below."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    size = (11, 6)
    figure, axes = pyplot.subplots(2, len(by_threads), figsize=size, sharey="row", squeeze=False)
    for column, (threads, found) in enumerate(by_threads.items()):
        for row, (what, rates) in enumerate(found.items()):
            axis = axes[row][column]
            for at, values in enumerate(rates.values()):
                spread = Spread(**values)
                error = [[spread.median - spread.low], [spread.high - spread.median]]
                axis.bar(at, spread.median, yerr=error, width=0.6, color=f"C{at}", capsize=4)
            axis.set_xticks(range(len(rates)), [name.replace(" ", "\n") for name in rates])
            axis.set_title(f"{what}, {threads} thread{'s' * (threads != '1')}")
            axis.spines[["top", "right"]].set_visible(False)
    for row in axes:
        row[0].set_ylabel("tokens per second")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
