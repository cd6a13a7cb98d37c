"""The operator with many services on a real API server: `python -m bench.operator`.

Services are created, left alone, edited, and edited while the workers of most others take
connections and answer nothing; the operator is a process of its own, pods become
ready without containers (kwok), and fake workers answer on every pod's address. Says how long it
takes until all are ready, what passes, memory and processor time cost, and how often the API server
is asked. `--redraw` only plots what was measured before.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import operator_page
from bench.operator_phases import run
from bench.operator_plot import plot
from bench.pictures import put_title
from bench.report import RESULTS, write_report
from tests.kube import pod_network

DEFAULT = RESULTS / "operator.json"


def main() -> int:
    """Measure, write JSON, plot and page, print the figures."""
    options = parse()
    if not options.redraw:
        if not pod_network.inside():
            within = (sys.executable, "-m", "tests.kube.pod_network", sys.executable)
            os.execv(sys.executable, [*within, "-m", "bench.operator", *sys.argv[1:]])
        measure(options)
    report = json.loads(options.out.read_text(encoding="utf-8"))
    plot(report["results"], options.out.with_suffix(".png"))
    put_title(options.out)
    if options.out == DEFAULT:
        operator_page.rewrite(options.out)
    for name, value in report["ratios"].items():
        print(f"{name:46} {value:.3f}")
    return 0


def parse() -> argparse.Namespace:
    """Parse the options; the defaults are what docs quote."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", type=int, default=200)
    parser.add_argument("--rest-seconds", type=int, default=90)
    parser.add_argument("--churn-seconds", type=int, default=90)
    parser.add_argument("--hung", type=int, default=180, help="services whose workers hang at last")
    parser.add_argument("--folder", type=Path, help="keep the logs in this new folder")
    parser.add_argument("--redraw", action="store_true", help="measure nothing")
    parser.add_argument("--out", type=Path, default=DEFAULT)
    return parser.parse_args()


def measure(options: argparse.Namespace) -> None:
    """Write the JSON."""
    if options.folder:
        options.folder.mkdir(parents=True)
    load, measured = os.getloadavg(), commit()
    with tempfile.TemporaryDirectory() as folder, bar() as progress:
        results = run(options, options.folder or Path(folder), progress)
    write_report(
        options.out,
        command=f"python -m bench.operator --services {options.services} "
        f"--rest-seconds {options.rest_seconds} --churn-seconds {options.churn_seconds} "
        f"--hung {options.hung}",
        results={"commit": measured, **results},
        ratios=figures(results),
        load_average=load,
    )


def figures(results: dict[str, Any]) -> dict[str, float]:
    """Return what may be quoted."""
    creation, rest, churn = (results[name] for name in ("creation", "rest", "churn"))
    edits, others = (sorted(results[name]) for name in ("edit_seconds", "hung_edit_seconds"))
    found = {
        "all_ready_seconds": results["all_ready_seconds"],
        "all_linked_seconds": results["all_linked_seconds"],
        "all_settled_seconds": results["all_settled_seconds"],
        "empty_rss_mib": results["empty_rss_mib"],
        "largest_rss_mib": max(p.rss_mib for p in (creation, rest, churn)),
        "rest_requests_per_service_and_minute": results["rest_requests_per_service_and_minute"],
        "rest_requests_seen_by_api_server": results["rest_requests_seen_by_api_server"],
        "rest_cpu_share": rest.cpu_share,
        "churn_cpu_share": churn.cpu_share,
        "rest_passes_per_minute": rest.passes_per_minute,
        "churn_passes_per_minute": churn.passes_per_minute,
        "edit_p50_seconds": edits[len(edits) // 2],
        "edit_longest_seconds": edits[-1],
        "hung_services": results["hung"],
        "hung_edit_p50_seconds": others[len(others) // 2],
        "hung_edit_longest_seconds": others[-1],
    }
    for name, period in (("creation", creation), ("rest", rest), ("churn", churn)):
        for what in ("pass_p50_seconds", "pass_p99_seconds", "queue_p99_seconds"):
            value = getattr(period, what)
            if value is not None:
                found[f"{name}_{what}"] = value
    return found


def bar() -> Progress:
    """One line for each phase."""
    columns = (TextColumn("{task.description:24}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn())


def commit() -> str:
    """Of the tree that is measured; `+` where it holds more."""
    git = ("git", "describe", "--always", "--dirty=+", "--exclude=*")
    return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
