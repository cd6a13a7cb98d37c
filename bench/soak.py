"""A soak at the edge of saturation, with random cancels: `python -m bench.soak`.

Starts `outrider run` and asks every request alone: prompts in all forms of `bench.prompts.forms`.
Then it measures with so many users as it runs requests how many it serves in a second, sends a
share of that for a while, and watches the memory of each process (Linux only). Ends with status 1
if a request is lost, an answer is not the one that was given alone, or a process grows or ends.
Load and comparison of texts are those of `outrider bench serve`.
"""

import argparse
import asyncio
import contextlib
import os
import random
import re
import signal
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.prompts.forms import in_all_forms
from bench.record.pictures import put_title
from bench.record.report import RESULTS, headless_pyplot, prompts, say, write_run
from outrider.cli.load.endpoint import LoadEndpoint
from outrider.cli.load.exchange import Exchange
from outrider.cli.load.run import LoadRun, jobs
from outrider.cli.load.summary import compare, report, summary
from outrider.cli.service.file import read_service

OUTRIDER = (sys.executable, "-P", "-c", "from outrider.cli.app import main; main()")
MAX_GROWTH_PERCENT = 5.0
"""Largest growth of one process's memory, in percent, from the first fifth of the soak to its
last."""
APIS = "OpenAI API", "gRPC"
"""As `outrider run` names them."""
STOP_SECONDS = 60.0
PROMPTS, MOST_TOKENS, CANCEL_SHARE = 12, 128, 0.2
PERIOD = 1.0
"""Seconds between two samples of memory."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Change of one process's memory, from the first fifth of the soak to the last."""

    first_mib: float
    last_mib: float
    percent: float
    ended: bool
    """The process ended during the soak."""


class ImpatientLoad(LoadRun):
    """A load that gives up some requests at a random point of their stream, or before it."""

    patience = 0.0
    """Mean seconds of an answer, by which that point is drawn; 0: nothing is given up."""
    cancel_share = CANCEL_SHARE
    """Share of requests that are given up."""
    rng = random.Random(0)

    async def send(self, exchange: Exchange) -> None:
        """Send one request, and perhaps leave its answer."""
        gives_up = self.patience and self.rng.random() < self.cancel_share
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.rng.uniform(0, self.patience) if gives_up else None):
                await super().send(exchange)


@dataclass(frozen=True, slots=True)
class Service:
    """A run that serves."""

    url: str
    """URL of the service's OpenAI-compatible API."""
    grpc: str
    """Host and port of its gRPC API."""
    processes: Mapping[int, str]
    """Role by process id."""


def main() -> int:
    """Run, write JSON and plot; return 1 if something went wrong."""
    options = parse()
    load = os.getloadavg()
    with running(options.file) as service:
        alone = asyncio.run(asked_alone(options, service))
        say(f"{len(alone)} requests were asked alone")
        edge, patience = asyncio.run(edge_of(options, service))
        rate = options.share * edge
        say(f"{edge:.2f} requests a second are served; {rate:.2f} are sent")
        samples: dict[int, list[int]] = {pid: [] for pid in service.processes}
        ended = asyncio.run(soak(options, service, (rate, patience), samples))
    soaked = summary(ended) | {"texts": compare([*alone, *ended])}
    report(soaked)
    grown = {role: growth(samples[pid]) for pid, role in service.processes.items()}
    wrong = problems(soaked, grown)
    write_run(
        options.out,
        "soak",
        {
            "requests_per_second_served": edge,
            "requests_per_second_sent": rate,
            **soaked,
            "memory": grown,
            "problems_found": wrong,
        },
        {f"memory_{role}": 1 + one.percent / 100 for role, one in grown.items()},
        load,
    )
    plot(samples, service.processes, options.out.with_suffix(".png"))
    put_title(options.out)
    for line in wrong:
        print(f"bench.soak: {line}", file=sys.stderr)
    return 1 if wrong else 0


def parse() -> argparse.Namespace:
    """Parse the options; the defaults are what docs quote."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-f", "--file", type=Path, default=Path(__file__).with_suffix(".yaml"))
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--warm-up", type=float, default=60.0, help="seconds, to find the edge")
    parser.add_argument("--share", type=float, default=0.9, help="of what can be served")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS / "soak.json")
    return parser.parse_args()


@contextlib.contextmanager
def running(file: Path) -> Iterator[Service]:
    """`outrider run`, from when it serves until it has stopped."""
    command = [*OUTRIDER, "run", "-f", str(file), "--port", "0", "--grpc-port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if "Ctrl-C" in line:
                break
        else:
            raise RuntimeError(f"outrider run ended with status {process.wait()}")
        yield served(said, process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=STOP_SECONDS)


def served(said: str, run: int) -> Service:
    """Return the address and the workers that `outrider run`, process `run`, printed."""
    url, grpc = (re.findall(rf"{api} at (\S+)$", said, re.MULTILINE)[0] for api in APIS)
    processes = {run: "run"}
    for name, pid in re.findall(r"^ +(\S+) +\S+, process (\d+)$", said, re.MULTILINE):
        role = re.sub(r"^.*-(target|draft)-(\d+)$", r"\1 \2", name)
        engines = children(int(pid))
        processes[int(pid)] = f"{role} server" if engines else role
        processes |= dict.fromkeys(engines, f"{role} engine")
    return Service(url, grpc, processes)


def children(pid: int) -> list[int]:
    """Return ids of the processes that a process has started; Linux only."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


async def asked_alone(options: argparse.Namespace, service: Service) -> list[Exchange]:
    """Return every request's answer, each asked while no other runs."""
    async with loading(service, options.seed) as load:
        load.requests = len(bodies())
        await load.closed_loop(1)
    return load.ended


async def edge_of(options: argparse.Namespace, service: Service) -> tuple[float, float]:
    """Return requests that end in a second with as many users as run at once, and the mean seconds
    of one; fills the KV, too."""
    users = read_service(options.file).spec.target.engine.max_running
    async with loading(service, options.seed, options.warm_up) as load:
        await load.closed_loop(users)
    found = summary(load.ended)
    return found["completed"] / found["duration"], found["latency"]["mean"]


async def soak(
    options: argparse.Namespace,
    service: Service,
    pace: tuple[float, float],
    samples: Mapping[int, list[int]],
) -> list[Exchange]:
    """Send requests at a rate, with some patience; return how each went."""
    rate, patience = pace
    async with loading(service, options.seed, options.seconds) as load:
        load.patience, load.rng = patience, random.Random(options.seed)
        beside = [asyncio.create_task(load.progress()), asyncio.create_task(watch(samples))]
        try:
            await load.open_loop(rate, options.seed)
        finally:
            for task in beside:
                task.cancel()
    return load.ended


@contextlib.asynccontextmanager
async def loading(
    service: Service, seed: int, seconds: float | None = None
) -> AsyncIterator[ImpatientLoad]:
    """A load of so many seconds."""
    place = LoadEndpoint(service.url)
    async with place.client() as client:
        shared = {"model": await place.model(client, None), "max_tokens": MOST_TOKENS}
        yield ImpatientLoad(client, jobs(bodies(), shared, seed), seconds=seconds)


def bodies() -> list[dict[str, Any]]:
    """Return what is asked: some prompts in every form."""
    return [body for one in prompts()[:PROMPTS] for body in in_all_forms(one.text)]


async def watch(samples: Mapping[int, list[int]]) -> None:
    """Sample the resident memory of processes, in bytes, until cancelled; Linux only."""
    while True:
        for pid, sizes in samples.items():
            sizes.append(resident(pid))
        await asyncio.sleep(PERIOD)


def resident(pid: int) -> int:
    """Return the bytes of memory of a process; 0 if there is none, or it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    kib = (line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
    return 1024 * int(next(kib, 0))


def growth(samples: Sequence[int]) -> Growth:
    """Return the growth of a process from its samples; those of 0 bytes are of one that ended."""
    alive = [size for size in samples if size] or [1]
    count = max(1, len(alive) // 5)
    first, last = statistics.fmean(alive[:count]), statistics.fmean(alive[-count:])
    return Growth(first / 2**20, last / 2**20, (last / first - 1) * 100, 0 in samples)


def problems(soaked: Mapping[str, Any], grown: Mapping[str, Growth]) -> list[str]:
    """Return what went wrong, in words; nothing if all is well."""
    wrong = [f"{count} requests lost: {why}" for why, count in soaked["problems"].items()]
    if not soaked["completed"]:
        wrong.append("no request completed")
    if differences := soaked["texts"]["differences"]:
        wrong.append(f"{len(differences)} answers have a wrong text")
    for role, one in grown.items():
        if one.ended:
            wrong.append(f"{role} ended")
        elif one.percent > MAX_GROWTH_PERCENT:
            rise = f"from {one.first_mib:.0f} to {one.last_mib:.0f} MiB"
            wrong.append(f"{role} grew by {one.percent:.1f} %, {rise}")
    return wrong


def plot(samples: Mapping[int, Sequence[int]], roles: Mapping[int, str], file: Path) -> None:
    """Memory of each process over the time of the soak, against its own at the beginning."""
    pyplot = headless_pyplot()

    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for pid, sizes in samples.items():
        changes = [100 * (size / sizes[0] - 1) for size in sizes]
        label = f"{roles[pid]}, {sizes[0] / 2**20:.0f} MiB"
        axes.plot([n * PERIOD for n in range(len(sizes))], changes, label=label)
    axes.axhline(MAX_GROWTH_PERCENT, color="gray", linestyle=":")
    axes.set_xlabel("seconds")
    axes.set_ylabel("resident memory, change in percent")
    axes.legend()
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    sys.exit(main())
