"""Phases of `bench.operator`: services are made, left alone, edited, and edited while others hang.

Leaves options, figures and files to `operator`.
"""

import argparse
import contextlib
import dataclasses
import itertools
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.progress import Progress
from tools import crds

from bench.operator_fleet import ACCOUNT, NAMESPACE, ROWS, Api, Services, register_operator
from bench.operator_plot import series
from bench.operator_samples import Sample, Samples
from tests.kube import worker_crowd
from tests.kube.behaviour import Behaviour
from tests.kube.control_plane import ControlPlane
from tests.kube.nodes import node
from tests.kube.operator_process import OperatorProcess
from tests.kube.worker_crowd import crowd

NODES = 4
READY_SECONDS = 900.0
"""When to give up."""
SETTLE_SECONDS = 15
"""From the last service that settled until the operator counts as at rest."""
EDITS_PER_MINUTE = 20
HANG_SECONDS = 45
"""From the moment that workers hang to the first edit of another service: each has been asked twice
or more by then."""
HUNG_EDIT_SECONDS = 2.0
"""From one edit to the next meanwhile."""
HUNG_ROWS = 10
"""`speculation.maxRows` after those edits."""
LOOK_SECONDS = 1.0
NOISE, NOISE_SECONDS = 0.08, 10.0
"""Rates of traffic differ by so much, and are sampled anew so often: figures that stand still would
make it easy to write nothing."""
TRAFFIC = {
    "plain_seconds": 1.3,
    "spent_seconds": 0.95,
    "passes": 40.0,
    "drafted_passes": 40.0,
    "tokens": 110.0,
    "draft_rows": 300.0,
    "accepted_rows": 70.0,
    "first_guesses": 40.0,
    "first_hits": 28.0,
}
"""Of every target and second: drafting pays."""


def run(options: argparse.Namespace, folder: Path, progress: Progress) -> dict[str, Any]:
    """All that is measured."""
    with ControlPlane.started(folder) as control_plane:
        control_plane.apply(*(node(f"node-{number}") for number in range(NODES)))
        control_plane.kubectl("apply", "--server-side", "-f", str(crds.FOLDER))
        established = ("--for=condition=Established", "--timeout=60s")
        control_plane.kubectl("wait", *established, "-f", str(crds.FOLDER))
        api = Api(control_plane)
        register_operator(api)
        with crowd(control_plane, folder, Behaviour(running=2, rates=TRAFFIC)) as behaviour:
            operator = OperatorProcess(
                control_plane,
                folder / "operator",
                NAMESPACE,
                arguments=("--lease-namespace", NAMESPACE, "--peer-certificates", "off"),
                kubeconfig=control_plane.user_kubeconfig(ACCOUNT, NAMESPACE),
            )
            operator.start()
            try:
                operator.wait_until_leading()
                with noise(behaviour), Samples(operator).taken() as samples:
                    return Run(options, api, operator, samples, progress, behaviour).phases()
            finally:
                operator.end()


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """One operator that leads, and nothing yet for it to do."""

    options: argparse.Namespace
    api: Api
    operator: OperatorProcess
    samples: Samples
    progress: Progress
    behaviour: Path
    """File of the workers' behaviour."""

    def phases(self) -> dict[str, Any]:
        """Creates, waits, rests, edits; what came of each."""
        services = Services(self.api, self.options.services)
        begin = self.samples.now()
        created = self.create(services)
        seconds = self.until_settled(services, begin)
        settled = self.samples.now()
        self.wait(SETTLE_SECONDS, "settles")
        rest = self.samples.now(), self.api.counted()
        self.wait(self.options.rest_seconds, "at rest")
        churn = self.samples.now(), self.api.counted()
        edits = self.edit(services)
        end = self.samples.now()
        hung = self.hang(services)
        every = self.options.services * (churn[0].second - rest[0].second) / 60
        return {
            "services": self.options.services,
            "empty_rss_mib": begin.rss_mib,
            "created_after_seconds": created - begin.second,
            **seconds,
            "creation": self.samples.period(begin, settled),
            "rest": self.samples.period(rest[0], churn[0]),
            "rest_requests_per_service_and_minute": (churn[0].requests - rest[0].requests) / every,
            "rest_requests_seen_by_api_server": (churn[1].of_operator - rest[1].of_operator)
            / every,
            "rest_applied": churn[1].applied - rest[1].applied,
            "churn": self.samples.period(churn[0], end),
            "edit_seconds": edits,
            "hung": self.options.hung,
            "hung_period": self.samples.period(hung[0], hung[1]),
            "hung_edit_seconds": hung[2],
            "series": series(self.samples.every),
            "marks": {
                "created": created,
                "ready": begin.second + seconds["all_ready_seconds"],
                "rest": rest[0].second,
                "churn": churn[0].second,
            },
        }

    def create(self, services: Services) -> float:
        """Make all services; the second at which the last was there."""
        for _ in self.progress.track(services.create(), len(services.names), description="create"):
            pass
        return self.samples.now().second

    def until_settled(self, services: Services, begin: Sample) -> dict[str, float]:
        """Return seconds since `begin` until every service was ready, linked, and settled."""
        count = len(services.names)
        task = self.progress.add_task("ready, linked, settled", total=3 * count)
        found: dict[str, float] = {}
        while len(found) < 3:
            self.operator.check()
            seen, second = services.progress(), time.monotonic() - self.samples.began
            for name, number in dataclasses.asdict(seen).items():
                if number == count:
                    found.setdefault(f"all_{name}_seconds", second - begin.second)
            self.progress.update(task, completed=seen.ready + seen.linked + seen.settled)
            if second - begin.second > READY_SECONDS:
                raise SystemExit(f"not settled after {READY_SECONDS:.0f} s: {seen}")
            time.sleep(LOOK_SECONDS)
        return found

    def wait(self, seconds: int, what: str) -> None:
        """Leave the operator alone."""
        for _ in self.progress.track(range(seconds), description=what):
            time.sleep(1)
            self.operator.check()

    def edit(self, services: Services) -> list[float]:
        """Edit one service after the other, at a steady pace; the seconds that each took."""
        count = self.options.churn_seconds * EDITS_PER_MINUTE // 60
        took, began = [], time.monotonic()
        names = itertools.islice(itertools.cycle(services.names), count)
        for number, name in enumerate(self.progress.track(names, count, description="edits")):
            time.sleep(max(0.0, began + 60 / EDITS_PER_MINUTE * number - time.monotonic()))
            rows = ROWS[(1 + number // len(services.names)) % 2]
            took.append(services.edit(name, rows, self.operator.check))
        return took

    def hang(self, services: Services) -> tuple[Sample, Sample, list[float]]:
        """Have the workers of most services answer nothing, and edit each of the others; the
        moments between which that was, and the seconds that each edit took."""
        worker_crowd.hang(self.behaviour, services.names[: self.options.hung])
        self.wait(HANG_SECONDS, "most hang")
        begin, took = self.samples.now(), []
        healthy = services.names[self.options.hung :]
        for name in self.progress.track(healthy, description="edits of the others"):
            took.append(services.edit(name, HUNG_ROWS, self.operator.check))
            time.sleep(HUNG_EDIT_SECONDS)
        return begin, self.samples.now(), took


@contextlib.contextmanager
def noise(file: Path) -> Iterator[None]:
    """Change the traffic of all workers a little, again and again."""
    ended, random_numbers = threading.Event(), random.Random(7)

    def change() -> None:
        while not ended.wait(NOISE_SECONDS):
            rates = {
                k: v * random_numbers.uniform(1 - NOISE, 1 + NOISE) for k, v in TRAFFIC.items()
            }
            Behaviour.read(file).but({"rates": rates}).write(file)

    thread = threading.Thread(target=change, name="noise")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
