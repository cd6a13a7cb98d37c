"""A soak at the edge of saturation, with random cancels: `python -m bench.soak`.

Starts `outrider run`, measures with so many users as it runs requests how many it serves in a
second, sends a share of that for a while, and watches the memory of each process (Linux only). Ends
with status 1 if a request is lost, a text is wrong, or a process grows or ends. Load, comparison of
texts and memory are those of `outrider bench serve`.
"""

import argparse
import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.pictures import put_title
from bench.report import RESULTS, prompts, write_report
from outrider.cli.load import memory
from outrider.cli.load.arrivals import Arrivals
from outrider.cli.load.drive import Extent
from outrider.cli.load.endpoint import Endpoint
from outrider.cli.load.exchange import Manner
from outrider.cli.load.lengths import Lengths
from outrider.cli.load.session import Measurement, Pace, Session
from outrider.cli.load.summary import Summary
from outrider.cli.load.workload import PAIRS, LoadWorkload
from outrider.cli.service_file import read_service

OUTRIDER = (sys.executable, "-P", "-c", "from outrider.cli.app import main; main()")
MAX_GROWTH_PERCENT = 5.0
"""Of one process's memory, from the first fifth of the soak to its last."""
STOP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Service:
    """A run that serves."""

    url: str
    """Of its OpenAI-compatible API."""
    processes: Mapping[int, str]
    """Role by process id."""


def main() -> int:
    """Run, write JSON and plot; return 1 if something went wrong."""
    options = parse()
    load = os.getloadavg()
    with running(options.file) as service:
        edge = asyncio.run(edge_rate(options, service))
        rate = options.share * edge
        print(f"{edge:.2f} requests a second are served; {rate:.2f} are sent", file=sys.stderr)
        watch = memory.watch(list(service.processes))
        soaked = asyncio.run(soak(options, service, rate, watch))
    wrong, grown = problems(soaked, service.processes), by_role(soaked, service.processes)
    write_report(
        options.out,
        command="python -m bench.soak " + " ".join(sys.argv[1:]),
        results={
            "requests_per_second_served": edge,
            "requests_per_second_sent": rate,
            **asdict(soaked),
            "memory": grown,
            "problems_found": wrong,
        },
        ratios={f"memory_{one['role']}": 1 + one["percent"] / 100 for one in grown},
        load_average=load,
    )
    plot(watch.samples, service.processes, options.out.with_suffix(".png"))
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
    parser.add_argument("--cancel-share", type=float, default=0.2)
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
    (url,) = re.findall(r"OpenAI API at (\S+)$", said, re.MULTILINE)
    processes = {run: "run"}
    for name, pid in re.findall(r"^ +(\S+) +\S+, process (\d+)$", said, re.MULTILINE):
        role = re.sub(r"^.*-(target|draft)-(\d+)$", r"\1 \2", name)
        engines = children(int(pid))
        processes[int(pid)] = f"{role} server" if engines else role
        processes |= dict.fromkeys(engines, f"{role} engine")
    return Service(url, processes)


def children(pid: int) -> list[int]:
    """Return ids of the processes that a process has started; Linux only."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


async def edge_rate(options: argparse.Namespace, service: Service) -> float:
    """Return requests that end in a second with as many users as run at once; fills the KV, too."""
    users = read_service(options.file).spec.target.engine.max_running
    pace = Pace(arrivals=Arrivals.POISSON, rate=None, burst_size=1, concurrency=users)
    session = replace(load_of(options, service, pace), extent=Extent(seconds=options.warm_up))
    found = await measured(session, memory.watch([]))
    return (found.completed + found.cancelled) / found.duration


async def soak(
    options: argparse.Namespace, service: Service, rate: float, watch: memory.MemoryWatch
) -> Summary:
    """The load itself, other requests than before."""
    pace = Pace(arrivals=Arrivals.POISSON, rate=rate, burst_size=1, concurrency=None)
    session = load_of(options, service, pace)
    return await measured(replace(session, seed=options.seed + 1), watch)


def load_of(options: argparse.Namespace, service: Service, pace: Pace) -> Session:
    """Return what `outrider bench serve` would send."""
    return Session(
        place=Endpoint(url=service.url),
        model=None,
        manner=Manner(model=""),
        workload=LoadWorkload(
            source=prompts(),
            lengths=Lengths(longest_prompt=256, longest_answer=128),
            cancel_share=options.cancel_share,
            checked_pairs=PAIRS,
        ),
        pace=pace,
        extent=Extent(seconds=options.seconds),
        seed=options.seed,
    )


async def measured(session: Session, watch: memory.MemoryWatch) -> Summary:
    """Run a load and show its figures."""
    measurement = Measurement(command="", wanted=[], memory=watch)
    await session.run(measurement)
    assert measurement.summary is not None
    return measurement.summary


def problems(soaked: Summary, roles: Mapping[int, str]) -> list[str]:
    """Return what went wrong, in words; nothing if all is well."""
    wrong = [f"{count} requests lost: {why}" for why, count in soaked.problems.items()]
    lost = soaked.sent - soaked.completed - soaked.cancelled - soaked.rejected
    if lost > sum(soaked.problems.values()):
        wrong.append(f"{lost} of {soaked.sent} requests lost")
    if not soaked.completed:
        wrong.append("no request completed")
    if soaked.texts is not None and soaked.texts.differences:
        wrong.append(f"{len(soaked.texts.differences)} answers have a wrong text")
    for one in soaked.memory:
        if one.ended:
            wrong.append(f"{roles[one.pid]} ended")
        elif one.percent > MAX_GROWTH_PERCENT:
            grown = f"from {one.first_mib:.0f} to {one.last_mib:.0f} MiB"
            wrong.append(f"{roles[one.pid]} grew by {one.percent:.1f} %, {grown}")
    missing = roles.keys() - {one.pid for one in soaked.memory}
    return wrong + [f"{roles[pid]} ended before it was looked at" for pid in sorted(missing)]


def by_role(soaked: Summary, roles: Mapping[int, str]) -> list[dict[str, Any]]:
    """Memory of each process, named by what it does."""
    return [
        {"role": roles[one.pid], **{k: v for k, v in asdict(one).items() if k != "pid"}}
        for one in soaked.memory
    ]


def plot(samples: Mapping[int, Sequence[int]], roles: Mapping[int, str], file: Path) -> None:
    """Memory of each process over the time of the soak, against its own at the beginning."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for pid, sizes in samples.items():
        changes = [100 * (size / sizes[0] - 1) for size in sizes]
        label = f"{roles[pid]}, {sizes[0] / 2**20:.0f} MiB"
        axes.plot([n * memory.PERIOD for n in range(len(sizes))], changes, label=label)
    axes.axhline(MAX_GROWTH_PERCENT, color="gray", linestyle=":")
    axes.set_xlabel("seconds")
    axes.set_ylabel("resident memory, change in percent")
    axes.legend()
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    sys.exit(main())
