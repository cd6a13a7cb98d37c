"""The operator with many services on a real API server: `python -m bench.operator`.

Services are created, left alone, and edited; the operator is a process of its own, pods become
ready without containers (kwok), and fake workers answer on every pod's address. Says how long it
takes until all are ready, what passes, memory and processor time cost, and how often the API server
is asked. With `--services 20 --rest-seconds 40` it is a check for changes of the operator.
"""

import argparse
import http.client
import itertools
import json
import math
import os
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from tools import crds

from bench.record.report import RESULTS, write_run
from outrider.operator.cluster.kinds import SERVICE
from outrider.operator.naming import API_VERSION, KIND
from tests.kube import pod_network
from tests.kube.behaviour import Behaviour
from tests.kube.control_plane import ControlPlane
from tests.kube.nodes import node
from tests.kube.operator_process import OperatorProcess
from tests.kube.worker_crowd import crowd

NAMESPACE, NODES = "scale", 4
READY_SECONDS, REQUEST_SECONDS, IDLE_SECONDS = 900.0, 60.0, 15.0
SETTLE_SECONDS, POLL_SECONDS = 15.0, 0.02
EDIT_SECONDS = 3.0
"""Seconds from one edit to the next."""
PASS_SECONDS = "outrider_operator_reconcile_duration_seconds"
REQUESTS = "outrider_operator_api_requests_total"
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
"""Counted by every target in a second: drafting pays."""
ROLE = {
    "model": {"uri": "hf://HuggingFaceTB/SmolLM2-135M-Instruct"},
    "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
}
SPEC = {
    "target": ROLE,
    "draft": {**ROLE, "scaling": {"mode": "Managed", "minReplicas": 0, "maxReplicas": 1}},
}


class Services:
    """So many services, each with one target and one draft, by one connection to the server."""

    def __init__(self, control_plane: ControlPlane, count: int) -> None:
        place = control_plane.place
        context = ssl.create_default_context(cafile=str(place.authority.certificate))
        context.load_cert_chain(place.admin.certificate, place.admin.key)
        self._connection = http.client.HTTPSConnection(
            "127.0.0.1", place.api_port, timeout=REQUEST_SECONDS, context=context
        )
        self._used = time.monotonic()
        self.names = [f"service-{number:03}" for number in range(count)]
        self._path = SERVICE.at(NAMESPACE)

    def create(self) -> None:
        """Make them one by one."""
        for name in self.names:
            whole = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}}
            self._ask("POST", self._path, {**whole, "spec": SPEC})

    def settled(self) -> int:
        """Return how many are ready, linked and drafting, with nothing in progress."""
        return sum(map(_settled, self._ask("GET", self._path)["items"]))

    def edit(self, name: str, rows: int) -> float:
        """Change a service's ceiling, which restarts no pod; return the seconds until its status
        says that it is in force."""
        began, path = time.monotonic(), f"{self._path}/{name}"
        change = {"spec": {"speculation": {"maxRows": rows}}}
        wanted = self._ask("PATCH", path, change)["metadata"]["generation"]
        while self._ask("GET", path).get("status", {}).get("observedGeneration", 0) < wanted:
            if time.monotonic() - began > REQUEST_SECONDS:
                raise RuntimeError(f"{name}: an edit is not in force after {REQUEST_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)
        return time.monotonic() - began

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        patch = "application/merge-patch+json" if method == "PATCH" else "application/json"
        if time.monotonic() - self._used > IDLE_SECONDS:
            self._connection.close()  # the server may have; the next request opens it
        text = None if body is None else json.dumps(body)
        self._connection.request(method, path, text, {"Content-Type": patch})
        answer = self._connection.getresponse()
        content = answer.read()
        self._used = time.monotonic()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {content.decode(errors='replace')}")
        return json.loads(content)


def _settled(item: Mapping[str, Any]) -> bool:
    status = item.get("status", {})
    found = {one["type"]: one["status"] for one in status.get("conditions", ())}
    wanted = ("Ready", "LinkEstablished", "SpeculationActive")
    newest = status.get("observedGeneration") == item["metadata"]["generation"]
    return (
        newest
        and all(found.get(one) == "True" for one in wanted)
        and (found.get("Progressing") == "False")
    )


@dataclass(frozen=True, slots=True)
class Sample:
    """The operator at one moment, counted from its start."""

    second: float
    cpu_seconds: float
    peak_mib: float
    """Most resident memory so far."""
    requests: float
    """To the API server, watches and kopf's lists left out."""
    within: Mapping[float, float]
    """Passes that took no longer than so many seconds."""

    @classmethod
    def of(cls, operator: OperatorProcess) -> "Sample":
        """Take one; raises what `urllib.request` does."""
        requests, within = 0.0, dict[float, float]()
        for family in text_string_to_metric_families(operator.get("/metrics")):
            for one in family.samples:
                if one.name == REQUESTS:
                    requests += one.value
                elif one.name == f"{PASS_SECONDS}_bucket":
                    edge = float(one.labels["le"])
                    within[edge] = within.get(edge, 0.0) + one.value
        folder = Path(f"/proc/{operator.pid}")
        lines = (folder / "status").read_text().splitlines()
        (peak,) = (int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
        ticks = (folder / "stat").read_text().rpartition(")")[2].split()[11:13]
        cpu = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
        return cls(time.monotonic(), cpu, peak / 1024, requests, within)


def period(begin: Sample, end: Sample) -> dict[str, float]:
    """Return what happened between two samples; a pass is said as the edge of its bucket."""
    seconds = end.second - begin.second
    passes = {edge: count - begin.within.get(edge, 0.0) for edge, count in end.within.items()}
    return {
        "seconds": seconds,
        "cpu_share": (end.cpu_seconds - begin.cpu_seconds) / seconds,
        "passes_per_minute": 60 * passes.get(math.inf, 0.0) / seconds,
        "requests_per_minute": 60 * (end.requests - begin.requests) / seconds,
        "pass_p50_seconds": quantile(passes, 0.5),
        "pass_p99_seconds": quantile(passes, 0.99),
        "peak_mib": end.peak_mib,
    }


def quantile(within: Mapping[float, float], share: float) -> float:
    """Return the smallest edge below which `share` of all lie; -1: none, or beyond all edges."""
    wanted = share * within.get(math.inf, 0.0)
    edges = [edge for edge, count in within.items() if wanted and count >= wanted]
    return -1.0 if min(edges, default=math.inf) == math.inf else min(edges)


def main() -> int:
    """Measure, write JSON, print the figures."""
    options = parse()
    if not pod_network.inside():
        within = (sys.executable, "-m", "tests.kube.pod_network", sys.executable)
        os.execv(sys.executable, [*within, "-m", "bench.operator", *sys.argv[1:]])
    load = os.getloadavg()
    with tempfile.TemporaryDirectory() as folder:
        results = run(options, options.folder or Path(folder))
    rest = results["rest"]["requests_per_minute"] / options.services
    ratios = {"rest_requests_per_service_and_minute": rest}
    write_run(options.out, "operator", results, ratios, load)
    print(json.dumps(results | ratios, indent=1))
    return 0


def parse() -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", type=int, default=200)
    parser.add_argument("--rest-seconds", type=float, default=90)
    parser.add_argument("--edits", type=int, default=30)
    parser.add_argument("--folder", type=Path, help="keep the logs in this folder")
    parser.add_argument("--out", type=Path, default=RESULTS / "operator_now.json")
    return parser.parse_args()


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Start servers, workers and operator; return all that is measured."""
    folder.mkdir(parents=True, exist_ok=True)
    with ControlPlane.started(folder) as control_plane:
        control_plane.apply(*(node(f"node-{number}") for number in range(NODES)))
        control_plane.kubectl("apply", "--server-side", "-f", str(crds.FOLDER))
        established = ("--for=condition=Established", "--timeout=60s")
        control_plane.kubectl("wait", *established, "-f", str(crds.FOLDER))
        control_plane.kubectl("create", "namespace", NAMESPACE)
        arguments = ("--lease-namespace", NAMESPACE, "--peer-certificates", "off")
        with crowd(control_plane, folder, Behaviour(running=2, rates=TRAFFIC)):
            operator = OperatorProcess(
                control_plane, folder / "operator", NAMESPACE, arguments=arguments
            )
            operator.start()
            try:
                operator.wait_until_leading()
                return phases(operator, Services(control_plane, options.services), options)
            finally:
                operator.end()


def phases(
    operator: OperatorProcess, services: Services, options: argparse.Namespace
) -> dict[str, Any]:
    """Create, wait, rest, edit; return what came of each."""
    begin = Sample.of(operator)
    services.create()
    while (count := services.settled()) < options.services:
        operator.check()
        if time.monotonic() - begin.second > READY_SECONDS:
            raise SystemExit(f"{count} services have settled after {READY_SECONDS:.0f} s")
        time.sleep(1)
    settled = Sample.of(operator)
    time.sleep(SETTLE_SECONDS)
    rest = Sample.of(operator)
    time.sleep(options.rest_seconds)
    churn, edits = Sample.of(operator), []
    for number, name in enumerate(itertools.islice(itertools.cycle(services.names), options.edits)):
        edits.append(services.edit(name, 12 + number // len(services.names) % 2))
        operator.check()
        time.sleep(EDIT_SECONDS)
    return {
        "services": options.services,
        "empty_peak_mib": begin.peak_mib,
        "all_settled_seconds": settled.second - begin.second,
        "creation": period(begin, settled),
        "rest": period(rest, churn),
        "churn": period(churn, Sample.of(operator)),
        "edit_p50_seconds": statistics.median(edits),
        "edit_longest_seconds": max(edits),
    }


if __name__ == "__main__":
    sys.exit(main())
