"""A target and a draft that people use, in every arrangement: `python -m bench.pairs`.

The pair is Qwen2.5-Coder-Instruct of 1.5B and 0.5B parameters (`bench.sides.code_pair` fetches
them), or any two GGUF files. Compared are plain decoding with one thread and with all, target and
draft `Colocated` and `Separate`, a draft with another tokenizer, `Colocated` (SmolLM2-135M), the
text as the only source of draft tokens, and `Colocated` with each depth from 1 to 6. `--distilled`
names the service that `outrider distil` wrote for the target; its draft is compared, too. For each
draft, the report has what placement `Auto` takes, and what its formula expects of the placements at
the acceptance that was measured. Beside them stand llama.cpp and OpenVINO
GenAI on the same files; OpenVINO reads no Q5_0, so it has no draft here. The prompts are code to
write, edits of code, and chats. The sides run at once and are asked in turns, each alone. Every
answer of this build is compared with plain decoding's. Two more tables: streams that write one
answer after the other, where drafting goes off if it does not pay, and the speed of reading prompts
of 512 to 4,096 tokens.
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
from bench.record.pictures import put_title
from bench.record.report import RESULTS, Prompt, headless_pyplot, say, write_run
from bench.same_ids import SMOLLM2
from bench.sides import code_pair, llama_server, peer
from bench.sides.peer import DoesNotRun, Peer, uv
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
from outrider.cli.local.service import placed
from outrider.cli.placement import formula
from outrider.cli.placement.choose import Choice, Chooser
from outrider.cli.placement.facts import Facts
from outrider.cli.service.arrangement import Arrangement, changed
from outrider.cli.service.file import parse_service, read_service
from outrider.cli.terminal.progress import reporter
from outrider.cli.workers.supervisor import StartOptions
from outrider.client import Sampling
from outrider.contract import processors
from outrider.contract.settings import PolicySettings
from outrider.operator.plan import PlanOptions
from outrider.operator.spec import Placement, SpeculativeService
from outrider.operator.spec.speculation import Proposer

EDITS = "edits"
SETS = {"code": code, EDITS: edits, "chats": chats}
GREEDY = "greedy"
COLOCATED, SEPARATE, SUFFIX = "Colocated", "Separate", "suffix source"
FOREIGN = "another tokenizer"
DISTILLED, DISTILLED_SEPARATE = "distilled draft", "distilled draft, Separate"
THEIRS, THEIR_DRAFT = "llama.cpp", "llama.cpp, own draft"
OPENVINO = "OpenVINO"
PLACED = {
    COLOCATED: (COLOCATED, Placement.COLOCATED),
    SEPARATE: (COLOCATED, Placement.SEPARATE),
    FOREIGN: (FOREIGN, Placement.COLOCATED),
    DISTILLED: (DISTILLED, Placement.COLOCATED),
    DISTILLED_SEPARATE: (DISTILLED, Placement.SEPARATE),
}
"""Sides that a draft's placement makes: the colocated side of the draft, and the placement."""
PEERS = (THEIRS, THEIR_DRAFT, OPENVINO)
STREAMS = (1, 4, 8, 16)
STREAM_TOKENS, STREAM_ANSWERS, STREAM_ROUNDS = 64, 2, 2
PROMPT_TOKENS = (512, 1024, 2048, 4096)
CONTEXT = 4608
SERVICE = """
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeService
metadata: {{name: pair}}
spec:
  target:
    model: {{uri: "{target}"}}
    engine: {{maxContext: {context}, maxRunning: 16, kvMemory: 1536Mi}}
  draft:
    model: {{uri: "{draft}"}}
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


@dataclass(frozen=True, slots=True)
class OpenVino:
    """A process of OpenVINO, which gets prompts as this build has tokenized them."""

    process: Peer
    service: Service

    async def ask(self, prompt: Prompt, tokens: int, sampling: Sampling) -> Answer:
        """Return one greedy answer; passes are not known."""
        ids = await self.service.ids(prompt)
        said = await self.process.ask(prompt=list(ids), way="plain", max_tokens=tokens)
        return Answer.of_peer(said["ids"], said["seconds"])

    async def read(self, prompt: Sequence[int]) -> float:
        """Return the seconds of one prompt."""
        said = await self.process.ask(prompt=list(prompt), way="plain", max_tokens=1)
        return float(said["prompt_seconds"])


def main() -> int:
    """Measure, write JSON, print tables."""
    options = parse()
    load = os.getloadavg()
    results = asyncio.run(run(options))
    write_run(options.out, "pairs", results, all_ratios(results["decode"]), load)
    plot(results, options.out.with_suffix(".png"))
    put_title(options.out)
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
    parser.add_argument(
        "--distilled", type=Path, metavar="FILE", help="the service.yaml of a distilled draft"
    )
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--prompts", type=int, default=12, help="most of each set")
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--depths", type=int, nargs="*", default=[1, 2, 3, 4, 5, 6])
    parser.add_argument("--no-peer", action="store_true", help="without llama.cpp and OpenVINO")
    parser.add_argument("--out", type=Path, default=RESULTS / "pairs.json")
    return parser.parse_args()


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """Start the sides; return the figures of answers, streams and prompts."""
    target, draft = files(options)
    services = {
        name: parse_service(
            SERVICE.format(target=target.as_uri(), draft=uri, context=CONTEXT), "bench.pairs"
        )
        for name, uri in ((COLOCATED, draft.as_uri()), (FOREIGN, options.foreign))
    }
    if options.distilled:
        services[DISTILLED] = with_draft_of(services[COLOCATED], options.distilled)
    auto = {name: await chosen_by_auto(name, service) for name, service in services.items()}
    async with contextlib.AsyncExitStack() as stack:
        ours = await own_sides(stack, services, options.depths)
        first = next(iter(ours.values())).service
        peers: dict[str, Side] = {}
        missing = dict.fromkeys(("llama.cpp", "OpenVINO"), "--no-peer")
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
                if not is_depth(name) and name not in PEERS[1:]  # they answer one at a time
            }
        )
        text = await first.client.tokenize(long_text())
        prompts = {
            name: {str(count): count / await side.read(text[:count]) for count in PROMPT_TOKENS}
            for name, side in sides.items()
            if name.startswith("plain") or name in (THEIRS, OPENVINO)
        }
    return {
        "decode": decode,
        "streams_tokens_per_second": streams,
        "prompt_tokens_per_second": prompts,
        "peers": {"llama.cpp": llama_server.VERSION, "OpenVINO": peer.OPENVINO},
        "missing": missing,
        "auto": {name: found.best.arrangement.name for name, (_, found) in auto.items()},
        "expected": {
            side: expected(*auto[draft], decode, draft, placement)
            for side, (draft, placement) in PLACED.items()
            if draft in auto
        },
        "facts": {name: asdict(found.facts) for name, (_, found) in auto.items()},
        "models": [target.name, draft.name, options.foreign],
    }


def files(options: argparse.Namespace) -> tuple[Path, Path]:
    """Return the files of target and draft."""
    if options.target and options.draft:
        return options.target.absolute(), options.draft.absolute()
    if options.target or options.draft:
        raise SystemExit("bench.pairs: --target and --draft go together")
    return code_pair.fetch(say)


def with_draft_of(service: SpeculativeService, file: Path) -> SpeculativeService:
    """Return the service with another draft: that of a service in a file."""
    distilled = read_service(file).spec.draft
    if service.spec.draft is None or distilled is None:
        raise SystemExit(f"bench.pairs: {file} has no draft")
    return changed(service, draft={"model": distilled.model})


async def chosen_by_auto(name: str, service: SpeculativeService) -> tuple[Chooser, Choice]:
    """Return what chooses for a user who leaves the placement to this machine, and what it chose
    before the first answer."""
    say(f"what Auto takes: {name}")
    start = StartOptions(PlanOptions(), reporter())
    async with placed(service, start, anew=True) as (local, _):
        assert local.choice is not None
        return Chooser.of(service, start), local.choice


def expected(
    chooser: Chooser, choice: Choice, decode: Mapping[str, Any], draft: str, placement: Placement
) -> dict[str, float]:
    """Return by set what the formula expects of a placement over plain decoding, with the
    acceptance of that set's answers; not of edits, as it knows nothing of text that repeats.
    `draft`: the name of the colocated side."""
    found = {}
    for name, modes in decode.items():
        if name == EDITS:
            continue
        guesses, hits = modes[GREEDY]["first_guesses"][draft]
        facts = dataclasses.replace(choice.facts, first_guesses=guesses, first_hits=hits)
        decided = chooser.decide(facts)
        for one in decided.found:
            if one.arrangement.placement is placement:
                found[name] = decided.over_plain(one)
    return found


async def own_sides(
    stack: contextlib.AsyncExitStack,
    services: Mapping[str, SpeculativeService],
    depths: Sequence[int],
) -> dict[str, OwnService]:
    """Start this build's sides; those of a depth share the colocated service. `services`: those
    that differ in their draft, by the name of the colocated side."""
    every = processors.count()
    colocated = Arrangement(Placement.COLOCATED, every)
    separate = Arrangement(Placement.SEPARATE, max(1, every - 1))
    service = services[COLOCATED]
    plain = {
        f"plain {n}": (service, Arrangement(None, n), WITHOUT_ANSWERS) for n in sorted({1, every})
    }
    arranged = plain | {
        SUFFIX: (service, colocated, (Proposer.SUFFIX,)),
        SEPARATE: (service, separate, WITHOUT_ANSWERS),
    }
    for name, one in services.items():
        arranged[name] = (one, colocated, WITHOUT_ANSWERS)
    if DISTILLED in services:
        arranged[DISTILLED_SEPARATE] = (services[DISTILLED], separate, WITHOUT_ANSWERS)
    sides = {}
    for name, (one, arrangement, sources) in arranged.items():
        say(f"starting: {name}")
        wanted = with_speculation(one, sources=sources)
        if Proposer.DRAFT not in sources:
            wanted = without_draft(wanted)
        running = await started(stack, wanted, name, arrangement)
        policy = (await running.state()).policy
        sides[name] = OwnService(running, dataclasses.replace(policy, version=0))
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
) -> tuple[dict[str, Side], dict[str, str]]:
    """Start llama.cpp twice and OpenVINO once; return those that write a token, and why others do
    not."""
    sides: dict[str, Side] = {}
    missing = {}
    for name, start in (("llama.cpp", llama_sides), ("OpenVINO", openvino_sides)):
        say(f"starting: {name}")
        try:
            found = await start(stack, target, draft, service)
            for side in found.values():
                await side.ask(Prompt("first", "code", "Say yes."), 2, MODES[GREEDY])
        except DoesNotRun as error:
            say(f"{name}: does not run: {error}")
            missing[name] = str(error)
        else:
            sides |= found
    return sides, missing


async def llama_sides(
    stack: contextlib.AsyncExitStack, target: Path, draft: Path, service: Service
) -> dict[str, Side]:
    """Start llama.cpp without and with its draft; raises `DoesNotRun`."""
    every = str(processors.count())
    many = ("-np", str(max(STREAMS)), "-c", str(max(STREAMS) * CONTEXT))
    with_draft = ("--spec-type", "draft-simple", "-md", draft, "-td", every, "-tbd", every)
    server = llama_server.built(uv())
    sides: dict[str, Side] = {}
    for name, options in {
        THEIRS: many,
        THEIR_DRAFT: ("-c", str(CONTEXT), *with_draft),
    }.items():
        running = llama_server.started(server, target, processors.count(), *options)
        sides[name] = llama_server.LlamaCpp(await stack.enter_async_context(running), service)
    return sides


async def openvino_sides(
    stack: contextlib.AsyncExitStack, target: Path, _: Path, service: Service
) -> dict[str, Side]:
    """Start OpenVINO; raises `DoesNotRun`."""
    command = peer.openvino("--model", target, "--threads", str(processors.count()))
    process = await stack.enter_async_context(peer.started("OpenVINO", command))
    return {OPENVINO: OpenVino(process, service)}


async def decoded(
    name: str, chosen: Sequence[Prompt], sides: Mapping[str, Side], options: argparse.Namespace
) -> dict[str, Any]:
    """Return the figures of one set of prompts by mode; depths and peers are greedy only."""
    found = {}
    for mode, sampling in MODES.items():
        asked = {
            side: one
            for side, one in sides.items()
            if mode == GREEDY or not (is_depth(side) or side in PEERS)
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
    own = [runs for name, runs in answers.items() if name not in PEERS]
    found = {
        "same_text": same_text(own),
        "plain": best,
        "over_plain": over(answers, best),
        "sides": {name: asdict(one) for name, one in summaries.items()},
        "first_guesses": {name: first_guesses(one) for name, one in measured.items()},
    }
    if THEIRS in answers:
        found["same_text_llama_cpp"] = same_text([answers[THEIRS], answers[THEIR_DRAFT]])
        found["same_text_as_llama_cpp"] = same_text([answers[THEIRS], answers[best]])
    return found


def first_guesses(measured: Measured) -> tuple[int, int]:
    """Return how often a draft guessed the next token, and how often it was right."""
    every = [answer for answers in measured.answers for answer in answers]
    return sum(one.first_guesses for one in every), sum(one.first_hits for one in every)


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
        f"| tokens per second (over plain; expected) | {' | '.join(decode)} |",
        "|---|" + "---|" * len(decode),
    ]
    for side in next(iter(decode.values()))["sides"]:
        cells = []
        for name, found in decode.items():
            rate = found["sides"][side]["tokens_per_second"]["median"]
            hoped = results["expected"].get(side, {}).get(name)
            ratio = f"{found['over_plain'][side]:.2f}" + (f"; {hoped:.2f}" if hoped else "")
            cells.append(f"{rate:.1f} ({ratio})")
        lines.append(f"| {side} | {' | '.join(cells)} |")
    for title, heads, key in (
        ("streams that go on, tokens per second in all", STREAMS, "streams_tokens_per_second"),
        ("prompt of so many tokens, tokens per second", PROMPT_TOKENS, "prompt_tokens_per_second"),
    ):
        lines += ["", f"| {title} | {' | '.join(map(str, heads))} |", "|---|" + "---|" * len(heads)]
        for side, values in results[key].items():
            cells = [f"{values[str(head)]:.0f}" for head in heads]
            lines.append(f"| {side} | {' | '.join(cells)} |")
    llama, openvino = results["peers"].values()
    lines += ["", f"llama.cpp is that of llama-cpp-python {llama}, OpenVINO `{openvino}`."]
    lines += [f"{name} did not run: {why}." for name, why in results["missing"].items()]
    lines += [f"`Auto` takes {taken(results['auto'])}."]
    return "\n".join(lines)


def plot(results: Mapping[str, Any], path: Path) -> None:
    """Gain of each draft by its share of the target's cost: lines as expected, dots as measured.

    A panel for each draft, at the acceptance of its answers to `code`; its own share is dotted.
    """
    pyplot = headless_pyplot()
    facts, measured = results["facts"], results["decode"]["code"][GREEDY]
    figure, axes = pyplot.subplots(1, len(facts), figsize=(11, 3.8), sharey=True, squeeze=False)
    shares = [at / 100 for at in range(1, 61)]
    for axis, (draft, found) in zip(axes[0], facts.items(), strict=True):
        known = Facts.of(found)
        guesses, hits = measured["first_guesses"][draft]
        own = known.alone[max(known.alone)]
        share = own.draft[min(own.draft)] / own.target[1]
        lines = [
            gains(dataclasses.replace(known, first_guesses=guesses, first_hits=hits), one / share)
            for one in shares
        ]
        for at, name in enumerate(lines[0]):
            axis.plot(shares, [line[name] for line in lines], color=f"C{at}", label=name)
        for side, (of, placement) in PLACED.items():
            if of == draft and side in measured["over_plain"]:
                at = list(lines[0]).index(str(placement))
                axis.plot(share, measured["over_plain"][side], marker="o", color=f"C{at}")
        axis.axvline(share, color="grey", linewidth=0.8, linestyle=":")
        axis.axhline(1.0, color="black", linewidth=0.8)
        name = "draft of its family" if draft == COLOCATED else draft
        axis.set_title(f"{name}, {hits / guesses:.0%} right")
        axis.set_xlabel("a pass of the draft, over one of the target")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("tokens a second over plain decoding")
    axes[0][-1].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def gains(facts: Facts, slower: float) -> dict[str, float]:
    """Return what each placement gains over plain decoding, with a draft so many times as slow; the
    last has its draft on processors of its own, and takes none from the target."""
    own, beside = facts.alone[max(facts.alone)], facts.beside
    assert beside is not None
    drafts = [
        {rows: slower * seconds for rows, seconds in one.draft.items()} for one in (own, beside)
    ]
    alone = formula.Rounds(own.target, drafts[0], facts.acceptance)
    sharing = formula.Rounds(beside.target, drafts[1], facts.acceptance)
    rates = {
        "Colocated": formula.colocated_rate(alone),
        "Separate": formula.parallel_rate(facts.alone[min(facts.alone)].target, sharing),
        "Separate, with processors of its own": formula.parallel_rate(own.target, alone),
    }
    plain = max(formula.plain_rate(one.target) for one in facts.alone.values())
    return {name: rate / plain for name, rate in rates.items()}


def taken(auto: Mapping[str, str]) -> str:
    """Return what `Auto` takes by draft, in words."""
    if len(found := set(auto.values())) == 1:
        return f"{found.pop()} with each draft"
    return "; ".join(f"{arrangement} with {name}" for name, arrangement in auto.items())


if __name__ == "__main__":
    sys.exit(main())
