"""Host cost of one verify step at 64 nodes, with a live gRPC stream delivering growth beside it.

Times draining, growing, choosing, rows, walking, learning and re-rooting in the loop of an engine
whose stream lives on a thread of its process, as a target's does. The forward pass is a stand-in
without the interpreter lock: one that only computes, and one that streams as many bytes as the
demo's weights, after which the caches hold nothing of the loop's.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from numba import njit
from rich.console import Console
from rich.table import Table

from bench.host_tree_peer import DEPTH, PAIR, VOCABULARY, WIDTH
from bench.report import RESULTS, write_report
from outrider.worker.engine.transport import Inbox, LoopThread
from outrider.worker.link.codec import decode_from_draft, encode_for_draft
from outrider.worker.link.wire import Commit, Grow, Limits, Open
from outrider.worker.messages import FromPeer
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.speculation.acceptance import Calibration
from outrider.worker.speculation.planner import Goodput, Seconds, sorted_candidates
from outrider.worker.tree.growth import Ints
from outrider.worker.tree.mirror import Mirror, validate_growth
from outrider.worker.tree.walk import ROOT, accept, paths

NODES = 64
SESSIONS = 4
FORWARD_SECONDS = 0.005
WEIGHT_BYTES = 110 << 20
LIMIT_MICROSECONDS = 100.0
STAGES = ("drain", "grow", "choose", "rows", "walk", "learn", "re-root")
COSTS: Seconds = FORWARD_SECONDS * (1 + 0.02 * np.arange(17, dtype=np.float64))
NO_TOKENS = np.empty(0, np.int32)
ALLOWED = np.ones(VOCABULARY, np.bool_)

Send = Callable[[Open | Commit], None]
Forward = Callable[[], None]


@dataclass(slots=True)
class Request:
    """One sequence and its session."""

    mirror: Mirror
    calibration: Calibration


@dataclass(slots=True)
class Engine:
    """A target's loop without its model."""

    mailbox: Inbox
    send: Send
    forward: Forward
    requests: dict[int, Request] = field(default_factory=dict)
    planner: Goodput = field(default_factory=lambda: Goodput(1 / FORWARD_SECONDS))
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(2))
    messages: int = 0
    """Growth messages drained in those steps."""
    laps: list[list[int]] = field(default_factory=list)
    """Nanoseconds of each stage, for each step whose mirror was full enough."""
    nodes: list[int] = field(default_factory=list)

    def open(self, average: Calibration) -> None:
        """Open every session."""
        for session in range(1, SESSIONS + 1):
            self.requests[session] = Request(Mirror(9), Calibration(average))
            limits = Limits(session, DEPTH, WIDTH, NODES, 1.0)
            tokens = np.arange(10, dtype=np.int32)
            self.send(Open(session, tokens, SamplingParams(), limits, len(tokens)))

    def step(self, session: int) -> None:
        """One verify step of one sequence."""
        request = self.requests[session]
        mirror = request.mirror
        at = [time.perf_counter_ns()]
        growths = [m for arrived in self.mailbox.drain() for m in arrived.messages]
        at.append(time.perf_counter_ns())
        for grow in growths:
            self._grow(grow)
        at.append(time.perf_counter_ns())
        reach = request.calibration.reach(mirror)
        candidates = sorted_candidates(
            reach, mirror.parent, mirror.token, mirror.depth, 1000, NO_TOKENS
        )
        selected = candidates.nodes[: self.planner.plan([candidates], COSTS, 16).rows[0]]
        at.append(time.perf_counter_ns())
        tokens = mirror.token[selected]
        rows = paths(mirror.parent, mirror.depth, selected)
        at.append(time.perf_counter_ns())
        sampled = self._sample(mirror, selected)
        self.forward()
        resumed = time.perf_counter_ns()
        _, committed = accept(rows.parent, tokens, sampled, NO_TOKENS, 1000)
        walked = time.perf_counter_ns()
        request.calibration.learn(mirror, selected, sampled)
        learned = time.perf_counter_ns()
        nodes, position = len(mirror), mirror.root_position
        mirror.commit(committed)
        done = time.perf_counter_ns()
        self.planner.learn(len(committed), FORWARD_SECONDS)
        self.send(Commit(session, position, committed))
        if nodes >= 0.9 * NODES:
            before = [later - earlier for earlier, later in itertools.pairwise(at)]
            self.laps.append([*before, walked - resumed, learned - walked, done - learned])
            self.nodes.append(nodes)
            self.messages += len(growths)

    def _grow(self, grow: Grow) -> None:
        mirror = self.requests[grow.session].mirror
        validate_growth(mirror, grow.growth, NODES, ALLOWED)
        mirror.grow(grow.growth)

    def _sample(self, mirror: Mirror, selected: Ints) -> Ints:
        """Sample as a target would: mostly a row's likeliest child, sometimes another token."""
        sampled = self.rng.integers(VOCABULARY, size=len(selected) + 1, dtype=np.int32)
        for row, node in enumerate([ROOT, *selected]):
            children = np.flatnonzero(mirror.parent == node)
            if len(children) and self.rng.random() < 0.6:
                sampled[row] = mirror.token[children[0]]
        return sampled


def compute() -> None:
    """Compute for as long as a forward pass, without the interpreter lock."""
    end = time.perf_counter() + FORWARD_SECONDS
    while time.perf_counter() < end:
        _spin(20_000)


def streaming() -> Forward:
    """A pass that reads as many bytes as the demo's target has weights."""
    weights = np.ones(WEIGHT_BYTES // 8, np.int64)
    return lambda: _read(weights)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _read(weights: np.ndarray) -> int:
    total = 0
    for weight in weights:
        total += weight
    return total


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _spin(rounds: int) -> float:
    value = 1.0
    for i in range(rounds):
        value = value * 0.999 + 1.0 / (i + 1)
    return value


@contextlib.contextmanager
def draft_process() -> Iterator[str]:
    """Run a draft; yields its address."""
    command = [sys.executable, "-m", "bench.host_tree_peer"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


@contextlib.contextmanager
def stream(address: str) -> Iterator[tuple[Inbox, Send]]:
    """Growth comes, decoded, from an event loop on a thread of this process."""
    thread, mailbox = LoopThread("links"), Inbox()
    outgoing: asyncio.Queue[bytes] = asyncio.Queue()

    async def queued() -> AsyncIterator[bytes]:
        while True:
            yield await outgoing.get()

    async def listen() -> None:
        async with grpc.aio.insecure_channel(address) as channel:
            pair: Any = channel.stream_stream(PAIR)
            async for payload in pair(queued()):
                mailbox.put(FromPeer(1, decode_from_draft(payload)))

    def put(message: Open | Commit) -> None:
        outgoing.put_nowait(encode_for_draft(message))

    task = asyncio.run_coroutine_threadsafe(listen(), thread.loop)
    try:
        yield mailbox, lambda message: thread.call(put, message)
    finally:
        task.cancel()
        thread.finish(asyncio.sleep(0.2))  # the stream ends meanwhile


def measure(forward: Forward, steps: int) -> Engine:
    """Return steps through every session one after the other; the first steps warm up."""
    with draft_process() as address, stream(address) as (mailbox, send):
        engine = Engine(mailbox, send, forward)
        engine.open(Calibration())
        warm = max(200, steps // 10)
        for i in range(warm + steps):
            engine.step(1 + i % SESSIONS)
            if i == warm:
                engine.laps.clear()
                engine.nodes.clear()
                engine.messages = 0
    if not engine.laps:
        raise RuntimeError(f"no mirror held {0.9 * NODES:.0f} nodes: the machine is too busy")
    return engine


def figures(laps: list[list[int]]) -> dict[str, dict[str, float]]:
    """Median and 99th percentile of every stage and of their sum, in microseconds."""
    micros = np.array(laps) / 1000
    columns = dict(zip(STAGES, micros.T, strict=True)) | {"total": micros.sum(axis=1)}
    return {
        stage: {
            "median_us": round(statistics.median(values), 2),
            "p99_us": round(float(np.percentile(values, 99)), 2),
        }
        for stage, values in columns.items()
    }


def main() -> None:
    """Measure with both stand-ins, alternating, print a table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000, help="steps of each repetition")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "host_tree.json")
    options = parser.parse_args()
    passes = {"computing": compute, "streaming": streaming()}
    load = os.getloadavg()
    engines: dict[str, list[Engine]] = {name: [] for name in passes}
    for _ in range(options.repetitions):
        for name, forward in passes.items():
            engines[name].append(measure(forward, options.steps))
    results = {
        name: figures([lap for e in runs for lap in e.laps]) for name, runs in engines.items()
    }
    table = Table("stage", *(f"{name}, µs: median (p99)" for name in passes))
    for stage in (*STAGES, "total"):
        cells = [results[name][stage] for name in passes]
        table.add_row(stage, *(f"{c['median_us']:.1f} ({c['p99_us']:.1f})" for c in cells))
    Console().print(table)
    computing, streamed = (results[name]["total"] for name in passes)
    write_report(
        options.out,
        command=f"python -m bench.host_tree --steps {options.steps} "
        f"--repetitions {options.repetitions}",
        results={
            "unit": "microseconds of one sequence's step, forward pass not counted",
            "limit_us": LIMIT_MICROSECONDS,
            "sessions": SESSIONS,
            "forward_seconds": FORWARD_SECONDS,
            "median_nodes": {
                n: statistics.median(m for e in r for m in e.nodes) for n, r in engines.items()
            },
            "steps": {name: sum(len(e.laps) for e in runs) for name, runs in engines.items()},
            "messages_per_step": {
                name: round(sum(e.messages for e in runs) / sum(len(e.laps) for e in runs), 2)
                for name, runs in engines.items()
            },
            "repetition_medians_us": {
                name: [figures(e.laps)["total"]["median_us"] for e in runs]
                for name, runs in engines.items()
            },
            "stages": results,
        },
        ratios={
            "computing_vs_limit": computing["median_us"] / LIMIT_MICROSECONDS,
            "streaming_vs_computing": streamed["median_us"] / computing["median_us"],
        },
        load_average=load,
    )


if __name__ == "__main__":
    main()
