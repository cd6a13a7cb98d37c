"""Links of two processes, by what carries them: time of one way, and processor time a message.

Transports and Hello are the real ones; there is no model. A commit goes to a process that sleeps,
which answers with growth of 8 nodes; transports take turns. Processor time counts
every thread of the process that sends, so that what gRPC does beside the engine is seen.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import outrider.worker.link.shared_memory  # noqa: F401  # compiled before a link is timed
from bench.link_peer import identity
from bench.report import RESULTS, Spread, median_and_range, write_report
from outrider.contract.settings import LinkTransport
from outrider.worker.engine.socket_channel import Channel, pair
from outrider.worker.engine.transport import TargetTransport
from outrider.worker.link import distributed
from outrider.worker.link.wire import Commit
from outrider.worker.messages import FromPeer, LinkDown, LinkUp, SetDrafts, ToPeer

TRANSPORTS = (LinkTransport.GRPC, LinkTransport.SHARED_MEMORY, LinkTransport.DISTRIBUTED)
BATCH = 16
"""Sessions of the larger of two batches."""
PAUSE_SECONDS = 0.001
"""Between two batches: about a draft's pass, in which both engines fall asleep."""
MICRO = 1e6
TOKENS = np.arange(2, dtype=np.int32)


@dataclass
class Side:
    """A target's transport, linked to a process that answers."""

    transport: TargetTransport
    process: "subprocess.Popen[str]"
    link: int = 0
    back: list[int] = field(default_factory=list)
    """Nanoseconds of growth's way, where it came alone."""
    there: list[int] = field(default_factory=list)
    """Nanoseconds of a commit's way, where it went alone."""

    def until_up(self) -> None:
        """Wait for the link."""
        while not self.link:
            for message in self.transport.drain():
                if isinstance(message, LinkUp):
                    self.link = message.link
            self.transport.wait(0.1)

    def turn(self, sessions: int) -> float:
        """Send so many commits; return the processor time until all are answered, in seconds."""
        began, missing = time.process_time(), sessions
        commits = [Commit(time.monotonic_ns(), sessions, TOKENS) for _ in range(sessions)]
        to_peer = [ToPeer(self.link, (commit,)) for commit in commits]
        self.transport.send(*(m for m in to_peer if not self.transport.direct.send(m)))
        while missing:
            self.transport.wait(1.0)
            for message in self.transport.drain():
                if isinstance(message, LinkDown):
                    raise RuntimeError("the link ended")
                if isinstance(message, FromPeer):
                    now = time.monotonic_ns()
                    if sessions == 1:
                        self.back += [now - grow.session for grow in message.messages]
                    missing -= len(message.messages)
        return time.process_time() - began

    def close(self) -> None:
        """End both sides."""
        self.transport.close()
        said, _ = self.process.communicate("")
        self.there = json.loads(said)


@contextmanager
def linked(link: LinkTransport, folder: Path) -> Iterator[Side]:
    """Start a draft's process, and link to it."""
    command = [sys.executable, "-m", "bench.link_peer", link, str(folder)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None
    port = process.stdout.readline().strip()
    ours, theirs = pair()
    transport, server = TargetTransport(Channel(ours)), Channel(theirs)
    server.send(SetDrafts(identity(link, folder), (f"127.0.0.1:{port}",)))
    with closing(ours), closing(theirs), closing(Side(transport, process)) as side:
        side.until_up()
        yield side


def measure(sides: dict[str, Side], rounds: int, turns: int) -> dict[str, list[float]]:
    """Return processor time of a turn, in microseconds, by transport and sessions."""
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, side in sides.items():
            for sessions in (1, BATCH):
                spent = 0.0
                for _ in range(turns):
                    time.sleep(PAUSE_SECONDS)
                    spent += side.turn(sessions)
                key = f"{name}_cpu_us_{sessions}"
                found.setdefault(key, []).append(spent / turns * MICRO)
    return found


def one_way(side: Side) -> dict[str, float]:
    """Return median and 99th percentile of both ways, in microseconds."""
    return {
        f"{way}_{word}_us": float(np.percentile(np.array(times) / 1000, share))
        for way, times in (("commit", side.there), ("growth", side.back))
        for word, share in (("median", 50), ("p99", 99))
    }


def main() -> None:
    """Measure, print and write `results/link.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--turns", type=int, default=100, help="of each size and round")
    parser.add_argument("--out", type=Path, default=RESULTS / "link.json")
    options = parser.parse_args()
    load = os.getloadavg()
    distributed.require()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as all_sides:
        sides = {
            str(link): all_sides.enter_context(linked(link, Path(folder))) for link in TRANSPORTS
        }
        measure(sides, 1, options.turns)  # unmeasured: caches, compiled code, connections
        for side in sides.values():
            side.back.clear()
        found = measure(sides, options.rounds, options.turns)
    spreads: dict[str, Spread] = {name: median_and_range(times) for name, times in found.items()}
    ways: dict[str, Any] = {name: one_way(side) for name, side in sides.items()}
    ratios = {
        f"{name}_of_{BATCH}_to_1": spreads[f"{name}_cpu_us_{BATCH}"].median
        / spreads[f"{name}_cpu_us_1"].median
        for name in sides
    }
    for name, figures in ways.items():
        print(name, {key: round(value, 1) for key, value in figures.items()})
    for name, spread in spreads.items():
        print(name, spread)
    print(ratios)
    write_report(
        options.out,
        command="python -m bench.link",
        results={"spreads": spreads, "one_way": ways},
        ratios=ratios,
        load_average=load,
    )


if __name__ == "__main__":
    main()
