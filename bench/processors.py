"""What drafting gains by instruction set: `python -m bench.processors`.

Runs `bench.speculation` once for each instruction set of the machine whose inner loops differ
(`OUTRIDER_ISA`), and puts a row for each into its report, which keeps the rows of other machines:
The page of benchmarks shows them as one table. `--add REPORT ISA` takes a row from a report that
`bench.speculation` wrote before. Rows of one machine are compared across runs, not side by side.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.cost_curve import here
from bench.record.report import RESULTS, write_run

OUT = RESULTS / "processors.json"
PLACEMENTS = ("Colocated", "Separate", "Auto")
"""Names of `bench.speculation`, and in words."""
IDENTITY = ("cpu", "flags", "cores", "isa")
"""Fields that identify a row: another row with the same ones replaces it."""

Row = Mapping[str, Any]


def main() -> int:
    """Measure or add rows, write the report, print the table."""
    options = parse()
    load = os.getloadavg()
    if options.add:
        report, isa = options.add
        found = [row(json.loads(Path(report).read_text(encoding="utf-8")), isa)]
    else:
        found = [measured(isa, options) for isa in options.isa or here()]
    rows = merged(known(options.out), found)
    write_run(
        options.out,
        "processors",
        {"rows": rows},
        {
            f"{processors(one)} by {one['isa']} {side}": ratio
            for one in rows
            for side, ratio in one["ratios"].items()
        },
        load,
    )
    print(table(rows))
    return 0


def parse() -> argparse.Namespace:
    """Parse the options; the defaults are what that page shows."""
    parser = argparse.ArgumentParser(prog="python -m bench.processors", description=__doc__)
    parser.add_argument("--isa", nargs="+", help="left out: every instruction set of the machine")
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--add", nargs=2, metavar=("REPORT", "ISA"), help="measure nothing")
    parser.add_argument("--out", type=Path, default=OUT)
    return parser.parse_args()


def measured(isa: str, options: argparse.Namespace) -> Row:
    """Run the benchmark on one instruction set; return its row."""
    print(f"{isa}:", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="outrider-isa-") as folder:
        out = Path(folder, "speculation.json")
        command = [
            *(sys.executable, "-P", "-m", "bench.speculation", "--pinned", "none"),
            *("--repetitions", str(options.repetitions), "--prompts", str(options.prompts)),
            *("--sides", *PLACEMENTS, "--out", str(out)),
        ]
        root = str(Path(__file__).parent.parent)
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = os.environ | {"OUTRIDER_ISA": isa, "PYTHONPATH": path}
        subprocess.run(command, env=environment, stdout=sys.stderr, check=True)
        return row(json.loads(out.read_text(encoding="utf-8")), isa)


def row(report: Mapping[str, Any], isa: str) -> Row:
    """Return the row of one report of `bench.speculation`."""
    machine, results = report["machine"], report["results"]
    plain = results["plain_side"]
    greedy = results["modes"]["greedy"]["sides"][plain]
    return {
        **{key: machine[key] for key in ("cpu", "flags", "cores")},
        "isa": isa,
        "date": report["date"][:10],
        "load": report["load_average"][0],
        "dtype": results["dtype"][plain],
        "plain": greedy["tokens_per_second"]["median"],
        "ratios": {
            side: report["ratios"][f"{side}_vs_plain"]
            for side in PLACEMENTS
            if f"{side}_vs_plain" in report["ratios"]
        },
        "same_text": min(mode["same_text"] for mode in results["modes"].values()),
    }


def known(path: Path) -> list[Row]:
    """Return the rows of a report; none if there is no report yet."""
    return json.loads(path.read_text(encoding="utf-8"))["results"]["rows"] if path.exists() else []


def merged(rows: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """Return all rows; those of the same processor and instruction set are replaced."""
    by_identity = {tuple(str(one[key]) for key in IDENTITY): one for one in (*rows, *new)}
    return list(by_identity.values())


def processors(one: Row) -> str:
    """A row's processors, with what they can do in brackets."""
    return f"{one['cores']} x {one['cpu']} ({', '.join(one['flags'])})"


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table in Markdown."""
    heads = (
        *("processors", "instruction set", "plain, tokens a second"),
        *PLACEMENTS,
        "date",
    )
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for one in rows:
        ratios = one["ratios"]
        gains = (f"{ratios[side]:.2f} x" if side in ratios else "-" for side in PLACEMENTS)
        cells = (processors(one), one["isa"], f"{one['plain']:.0f}", *gains, one["date"])
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
