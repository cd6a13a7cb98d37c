"""A target and a draft that people use, in every arrangement: `python -m bench.pairs`.

The pair is Qwen2.5-Coder-Instruct of 1.5B and 0.5B parameters (`bench.sides.code_pair` fetches
them), or any two GGUF files. Compared are plain decoding with one thread and with all, target and
draft `Colocated` and `Separate`, a draft with another tokenizer, `Colocated` (SmolLM2-135M), the
text as the only source of draft tokens, and `Colocated` with each depth from 1 to 6. Beside them
stands llama.cpp on the same files, plain and with its own draft. The prompts are code to write,
edits of code, and chats. The sides run at once and are asked in turns, each alone. Every answer of
this build is compared with plain decoding's. Two more tables: streams that write one answer after
the other, where drafting goes off if it does not pay, and the speed of reading prompts of 512 to
4,096 tokens.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table

from bench.prompts.pairs import chats, code, edits
from bench.record.report import RESULTS, Prompt, say, write_run
from bench.same_ids import SMOLLM2
from bench.sides import code_pair, llama_server
from bench.sides.peer import DoesNotRun, uv
from bench.sides.services import (
    MODES,
    WITHOUT_ANSWERS,
    Answer,
    Service,
    started,
    turns,
    with_speculation,
    without_draft,
)
from bench.speculation.figures import Measured, over, same_text, summary
from outrider.cli.service.arrangement import Arrangement
from outrider.cli.service.file import parse_service
from outrider.client import Sampling
from outrider.contract import processors
from outrider.contract.settings import PolicySettings
from outrider.operator.spec import Placement, SpeculativeService
from outrider.operator.spec.speculation import Proposer

SETS = {"code": code, "edits": edits, "chats": chats}
GREEDY = "greedy"
COLOCATED, SEPARATE, SUFFIX = "Colocated", "Separate", "suffix source"
FOREIGN = "another tokenizer"
THEIRS, THEIR_DRAFT = "llama.cpp", "llama.cpp, own draft"
STREAMS = (1, 2, 4, 8)
STREAM_TOKENS, STREAM_ANSWERS, STREAM_ROUNDS = 64, 3, 2
PROMPT_TOKENS = (512, 1024, 2048, 4096)
SERVICE = """
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeService
metadata: {{name: pair}}
spec:
  target:
    model: {{uri: "{target}"}}
    engine: {{maxContext: 4608, maxRunning: 8, kvMemory: 1536Mi}}
  draft:
    model: {{uri: "{draft}"}}
    engine: {{maxContext: 4608, maxRunning: 8, kvMemory: 384Mi}}
"""


class Side(Protocol):
    """One of those that are compared."""

    async def ask(self, prompt: Prompt, tokens: int, sampling: Sampling) -> Answer:
        """Return one answer of at most so many tokens."""

    async def read(self, prompt: Sequence[int]) -> float:
        """Return the seconds from a prompt's begin to the first token after it."""


@dataclass(frozen=True, slots=True)
class OwnService:
    """A service of this build under one policy."""

    service: Service
    policy: PolicySettings

    async def ask(self, prompt: Prompt, tokens: int, sampling: Sampling) -> Answer:
        """Return one answer."""
        state = await self.service.state()
        if dataclasses.replace(state.policy, version=0) != self.policy:
            version = state.policy.version + 1
            await self.service.client.set_policy(dataclasses.replace(self.policy, version=version))
        return await self.service.ask(prompt, tokens, sampling)

    @property
    def with_switch(self) -> "OwnService":
        """The same, where drafting goes off that does not pay."""
        usual = PolicySettings()
        thresholds = {
            "off_below_percent": usual.off_below_percent,
            "on_above_percent": usual.on_above_percent,
        }
        return dataclasses.replace(self, policy=dataclasses.replace(self.policy, **thresholds))

    async def read(self, prompt: Sequence[int]) -> float:
        """Return the seconds of one prompt."""
        timing = (await self.service.result(prompt, 1, MODES[GREEDY])).timing
        return timing.first_token_seconds - timing.queued_seconds


def main() -> int:
    """Measure, write JSON, print tables."""
    options = parse()
    load = os.getloadavg()
    results = asyncio.run(run(options))
    write_run(options.out, "pairs", results, all_ratios(results["decode"]), load)
    for made in tables(results):
        Console().print(made)
    return 0


def parse() -> argparse.Namespace:
    """Parse the options; the defaults are what docs quote."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, help="a GGUF file; left out: Qwen2.5-Coder 1.5B")
    parser.add_argument("--draft", type=Path, help="a GGUF file; left out: Qwen2.5-Coder 0.5B")
    parser.add_argument(
        "--foreign", default=SMOLLM2, help="the URI of a draft with another tokenizer"
    )
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--prompts", type=int, default=12, help="most of each set")
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--depths", type=int, nargs="*", default=[1, 2, 3, 4, 5, 6])
    parser.add_argument("--no-peer", action="store_true", help="without llama.cpp")
    parser.add_argument("--out", type=Path, default=RESULTS / "pairs.json")
    return parser.parse_args()


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """Start the sides; return the figures of answers, streams and prompts."""
    target, draft = files(options)
    service, foreign = (
        parse_service(SERVICE.format(target=target.as_uri(), draft=uri), "bench.pairs")
        for uri in (draft.as_uri(), options.foreign)
    )
    async with contextlib.AsyncExitStack() as stack:
        ours = await own_sides(stack, service, foreign, options.depths)
        first = next(iter(ours.values())).service
        peers: dict[str, Side] = {}
        missing = "--no-peer"
        if not options.no_peer:
            peers, missing = await peer_sides(stack, target, draft, first)
        sides: dict[str, Side] = {**ours, **peers}
        decode = {
            name: await decoded(name, wanted(options.prompts), sides, options)
            for name, wanted in SETS.items()
        }
        streams = await streamed(
            {
                name: side.with_switch if isinstance(side, OwnService) else side
                for name, side in sides.items()
                if not is_depth(name) and name != THEIR_DRAFT  # it answers one at a time
            }
        )
        text = await first.client.tokenize(long_text())
        prompts = {
            name: {str(count): count / await side.read(text[:count]) for count in PROMPT_TOKENS}
            for name, side in sides.items()
            if name.startswith("plain") or name == THEIRS
        }
    return {
        "decode": decode,
        "streams_tokens_per_second": streams,
        "prompt_tokens_per_second": prompts,
        "peer": missing or llama_server.VERSION,
        "models": [target.name, draft.name, options.foreign],
    }


def files(options: argparse.Namespace) -> tuple[Path, Path]:
    """Return the files of target and draft."""
    if options.target and options.draft:
        return options.target.absolute(), options.draft.absolute()
    if options.target or options.draft:
        raise SystemExit("bench.pairs: --target and --draft go together")
    return code_pair.fetch(say)


async def own_sides(
    stack: contextlib.AsyncExitStack,
    service: SpeculativeService,
    foreign: SpeculativeService,
    depths: Sequence[int],
) -> dict[str, OwnService]:
    """Start this build's sides; those of a depth share the colocated service. `foreign`: the
    service with a draft of another tokenizer."""
    every = processors.count()
    separate = Arrangement(Placement.SEPARATE, max(1, every - 1))
    plain = {f"plain {n}": (Arrangement(None, n), WITHOUT_ANSWERS) for n in sorted({1, every})}
    arranged = plain | {
        SUFFIX: (Arrangement(Placement.COLOCATED, every), (Proposer.SUFFIX,)),
        COLOCATED: (Arrangement(Placement.COLOCATED, every), WITHOUT_ANSWERS),
        FOREIGN: (Arrangement(Placement.COLOCATED, every), WITHOUT_ANSWERS),
        SEPARATE: (separate, WITHOUT_ANSWERS),
    }
    sides = {}
    for name, (arrangement, sources) in arranged.items():
        say(f"starting: {name}")
        wanted = with_speculation(foreign if name == FOREIGN else service, sources=sources)
        if Proposer.DRAFT not in sources:
            wanted = without_draft(wanted)
        one = await started(stack, wanted, name, arrangement)
        policy = (await one.state()).policy
        sides[name] = OwnService(one, dataclasses.replace(policy, version=0))
    whole = sides[COLOCATED]
    for depth in depths:
        policy = dataclasses.replace(whole.policy, depth=depth, max_rows=depth, width=1)
        sides[f"depth {depth}"] = OwnService(whole.service, policy)
    return sides


def is_depth(name: str) -> bool:
    """Return True for a colocated draft whose depth is given."""
    return name.startswith("depth ")


async def peer_sides(
    stack: contextlib.AsyncExitStack, target: Path, draft: Path, service: Service
) -> tuple[dict[str, Side], str]:
    """Start llama.cpp twice and let each write a token; return both, or why there are none."""
    every = str(processors.count())
    with_draft = ("--spec-type", "draft-simple", "-md", draft, "-td", every, "-tbd", every)
    more = {THEIRS: ("-np", "8"), THEIR_DRAFT: with_draft}
    sides: dict[str, Side] = {}
    try:
        server = llama_server.built(uv())
        for name, options in more.items():
            say(f"starting: {name}")
            context = ("-c", str(8 * 4608 if name == THEIRS else 4608))
            running = llama_server.started(server, target, processors.count(), *context, *options)
            side = llama_server.LlamaCpp(await stack.enter_async_context(running), service)
            await side.ask(Prompt("first", "code", "Say yes."), 2, MODES[GREEDY])
            sides[name] = side
    except DoesNotRun as error:
        say(f"llama.cpp: does not run: {error}")
        return {}, str(error)
    return sides, ""


async def decoded(
    name: str, chosen: Sequence[Prompt], sides: Mapping[str, Side], options: argparse.Namespace
) -> dict[str, Any]:
    """Return the figures of one set of prompts by mode; depths and llama.cpp are greedy only."""
    found = {}
    for mode, sampling in MODES.items():
        asked = {
            side: one
            for side, one in sides.items()
            if mode == GREEDY or not (is_depth(side) or side in (THEIRS, THEIR_DRAFT))
        }
        measured = {side: Measured() for side in asked}
        for one in asked.values():
            await one.ask(chosen[0], 8, sampling)
        for repetition in range(options.repetitions):
            for each in measured.values():
                each.answers.append([])
            for number, prompt in enumerate(chosen):
                say(f"{name}, {mode}: {number + 1} of {len(chosen)}")
                for side in turns(list(asked), repetition + number):
                    answer = await asked[side].ask(prompt, options.max_tokens, sampling)
                    measured[side].answers[-1].append(answer)
        found[mode] = figures(measured)
    return found


def figures(measured: Mapping[str, Measured]) -> dict[str, Any]:
    """Return tokens a second by side, ratios to the best plain decoding, and equal texts."""
    answers = {name: one.answers for name, one in measured.items()}
    summaries = {name: summary(one) for name, one in measured.items()}
    plain = [name for name in summaries if name.startswith("plain")]
    best = max(plain, key=lambda name: summaries[name].tokens_per_second.median)
    own = [runs for name, runs in answers.items() if name not in (THEIRS, THEIR_DRAFT)]
    found = {
        "same_text": same_text(own),
        "plain": best,
        "over_plain": over(answers, best),
        "sides": {name: asdict(one) for name, one in summaries.items()},
    }
    if THEIRS in answers:
        found["same_text_llama_cpp"] = same_text([answers[THEIRS], answers[THEIR_DRAFT]])
        found["same_text_as_llama_cpp"] = same_text([answers[THEIRS], answers[best]])
    return found


async def streamed(sides: Mapping[str, Side]) -> dict[str, dict[str, float]]:
    """Return tokens a second of all streams together, by side and by how many there are; sides take
    turns."""
    found: dict[str, dict[str, float]] = {name: {} for name in sides}
    for count in STREAMS:
        rounds = [
            {name: await sustained(side, count) for name, side in sides.items()}
            for _ in range(STREAM_ROUNDS)
        ]
        for name in sides:
            tokens, seconds = map(sum, zip(*[each[name] for each in rounds], strict=True))
            found[name][str(count)] = tokens / seconds
    return found


async def sustained(side: Side, count: int) -> tuple[float, float]:
    """Let so many streams write one answer after the other; return tokens and seconds until the
    first stream is done. Of answers under way then, as much counts as lies before."""
    prompts, began = code(max(STREAMS)), time.perf_counter()
    answers: list[tuple[float, float, int]] = []

    async def stream(first: int) -> float:
        for at in range(first, first + STREAM_ANSWERS):
            start = time.perf_counter()
            answer = await side.ask(prompts[at % len(prompts)], STREAM_TOKENS, MODES[GREEDY])
            answers.append((start, time.perf_counter(), answer.tokens))
        return time.perf_counter()

    end = min(await asyncio.gather(*[stream(number) for number in range(count)]))
    shares = [(min(done, end) - start) / (done - start) for start, done, _ in answers]
    tokens = sum(max(0.0, share) * one[2] for share, one in zip(shares, answers, strict=True))
    return tokens, end - began


def long_text() -> str:
    """Return Python code of more than the longest prompt's tokens."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return "\n".join(file.read_text(encoding="utf-8") for file in files)[: 8 * PROMPT_TOKENS[-1]]


def all_ratios(decode: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, float]:
    """Return what may be quoted: each side over the best plain decoding, by set and mode."""
    return {
        f"{side} over plain, {name}, {mode}": ratio
        for name, modes in decode.items()
        for mode, found in modes.items()
        for side, ratio in found["over_plain"].items()
    }


def tables(results: Mapping[str, Any]) -> list[Table]:
    """Return the figures of answers, streams and prompts."""
    made = []
    for name, modes in results["decode"].items():
        for mode, found in modes.items():
            title = f"{name}, {mode}: same text {found['same_text']:.0%}"
            one = Table("", "over plain", "tokens/s", "tokens a pass", title=title)
            for side, values in found["sides"].items():
                one.add_row(
                    side,
                    f"{found['over_plain'][side]:.2f}",
                    f"{values['tokens_per_second']['median']:.1f}",
                    f"{values['tokens_per_pass']:.2f}",
                )
            made.append(one)
    for title, heads, key in (
        ("streams that go on, tokens/s in all", STREAMS, "streams_tokens_per_second"),
        ("prompts, tokens/s", PROMPT_TOKENS, "prompt_tokens_per_second"),
    ):
        one = Table("", *map(str, heads), title=title)
        for side, values in results[key].items():
            one.add_row(side, *(f"{values[str(head)]:.1f}" for head in heads))
        made.append(one)
    return made


def markdown(results: Mapping[str, Any]) -> str:
    """Return the greedy figures as tables in Markdown: answers, streams, prompts."""
    decode = {name: modes[GREEDY] for name, modes in results["decode"].items()}
    lines = [
        f"| tokens per second (over plain) | {' | '.join(decode)} |",
        "|---|" + "---|" * len(decode),
    ]
    for side in next(iter(decode.values()))["sides"]:
        cells = [
            f"{found['sides'][side]['tokens_per_second']['median']:.1f}"
            f" ({found['over_plain'][side]:.2f})"
            for found in decode.values()
        ]
        lines.append(f"| {side} | {' | '.join(cells)} |")
    for title, heads, key in (
        ("streams that go on, tokens per second in all", STREAMS, "streams_tokens_per_second"),
        ("prompt of so many tokens, tokens per second", PROMPT_TOKENS, "prompt_tokens_per_second"),
    ):
        lines += ["", f"| {title} | {' | '.join(map(str, heads))} |", "|---|" + "---|" * len(heads)]
        for side, values in results[key].items():
            cells = [f"{values[str(head)]:.0f}" for head in heads]
            lines.append(f"| {side} | {' | '.join(cells)} |")
    lines += ["", f"llama.cpp is that of llama-cpp-python: {results['peer']}."]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
