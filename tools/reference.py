"""Reference pages that follow from the code: `python -m tools.reference`.

docs/reference/cli.md, service.md, settings.md, metrics.md, simulation.md and distillation.md, the
chart's README, and parts of docs/operator.md; the words are those of the options and fields
themselves, and a test compares. Leaves other pages to people.
"""

import ast
import dataclasses
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from tools.chart_page import chart_page
from tools.operator_page import operator_page
from tools.service_page import FIELD_HEAD, fields, said_once, service_page
from tools.tables import NOTE, REQUIRED, shown, table
from typer.main import get_command

from outrider.cli.app import app
from outrider.contract import metrics, settings
from outrider.distil.recipe import Recipe
from outrider.simulator.description import Simulation

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "reference"
OPERATOR = ROOT / "docs" / "operator.md"


def pages() -> dict[str, str]:
    """Text of each page by its file name."""
    return {
        "cli.md": cli_page(),
        "service.md": service_page(),
        "settings.md": settings_page(),
        "metrics.md": metrics_page(),
        "simulation.md": simulation_page(),
        "distillation.md": distillation_page(),
        "../operator.md": operator_page(OPERATOR.read_text(encoding="utf-8")),
        "../../charts/outrider/README.md": chart_page(),
    }


def cli_page() -> str:
    """Every command with its options, as `--help` has them."""
    group: Any = get_command(app)
    parts = [NOTE, "# Command line", str(group.help), EXITS]
    seen: dict[tuple[str, str], str] = {}
    parts += [section(name, command, seen) for name, command in commands(group)]
    return "\n\n".join(parts) + "\n"


def commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every command by its name; those of a group follow each other."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


SHORT = 40
"""Characters of a meaning that is repeated rather than referred to."""
EXITS = """\
Text and JSON go to stdout; progress and errors go to stderr. With `run --prompt` the figures follow
the text on stdout, with `generate` they go to stderr.

| exit status | meaning |
|---|---|
| 0 | done |
| 1 | a worker stopped or did not become ready, no service answered, or a check failed |
| 2 | wrong input: an option, the YAML file or a field of the request |
| 130, 143 | Ctrl-C, SIGTERM |"""


def section(name: str, command: Any, seen: dict[tuple[str, str], str]) -> str:
    """One command: what it does, examples, options; `seen` are those of the commands before."""
    context = typer.Context(command, info_name=f"outrider {name}")
    rows = []
    for parameter in command.params:
        row = (f"`{' '.join(names(parameter, context))}`", f"{parameter.help}{default(parameter)}")
        first = seen.setdefault(row, name)
        shared = first != name and len(row[1]) > SHORT
        if not shared:
            rows.append(row)
        elif rows and rows[-1][1] == f"As of `{first}`.":
            rows[-1] = (f"{rows[-1][0]}, {row[0]}", rows[-1][1])
        else:
            rows.append((row[0], f"As of `{first}`."))
    return f"## outrider {name}\n\n{command.help}\n\n{table(('option', 'meaning'), rows)}"


def names(parameter: Any, context: typer.Context) -> Iterator[str]:
    """Spellings of an option and its value's name, or an argument's name."""
    if parameter.param_type_name == "argument":
        yield parameter.metavar
        return
    yield ", ".join(parameter.opts)
    if not parameter.is_flag:
        yield parameter.metavar or parameter.get_help_record(context)[0].split()[-1]


def default(parameter: Any) -> str:
    """The part that the help text leaves out: required or not, and the default."""
    if parameter.required:
        return f" [{REQUIRED}]"
    shown = parameter.default not in (None, False)
    return f" [default: {parameter.default}]" if shown else ""


def settings_page() -> str:
    """Every key of a worker's settings file."""
    parts = [NOTE, "# Worker settings", SETTINGS]
    for kind, where in (
        (settings.WorkerSettings, "The file"),
        (settings.ModelSettings, "`model` and `colocated`"),
        (settings.PeerSettings, "`peers`"),
        (settings.PipelineSettings, "`pipeline`"),
        (settings.PolicySettings, "`policy`"),
    ):
        parts.append(f"## {where}\n\n{kind.__doc__}\n\n{keys(kind)}")
    return "\n\n".join(parts) + "\n"


SETTINGS = """\
The JSON file that `python -m outrider.worker serve --settings FILE` starts from. `outrider run`
writes one for each worker from the [service](service.md); write one yourself only to start a worker
by hand. An unknown key, a missing key or a value of the wrong type is refused by name."""


def keys(kind: type) -> str:
    """Table of the keys of one settings class."""
    meanings = attribute_docs(kind)
    rows = [
        (
            f"`{field.name}`",
            f"`{type_name(field.type)}`",
            REQUIRED if field.default is dataclasses.MISSING else shown(field.default),
            meanings[field.name],
        )
        for field in dataclasses.fields(kind)
    ]
    return table(("key", "type", "default", "meaning"), rows)


def attribute_docs(kind: type) -> dict[str, str]:
    """The string below each attribute of a class."""
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    docs = {}
    for above, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(above, ast.AnnAssign) and isinstance(below, ast.Expr):
            assert isinstance(above.target, ast.Name)
            docs[above.target.id] = str(ast.literal_eval(below.value))
    return docs


def type_name(kind: Any) -> str:
    """A type as it is written."""
    if inspect.isclass(kind):
        return kind.__name__
    return str(kind).replace(f"{settings.__name__}.", "")


def metrics_page() -> str:
    """Every metric of a worker."""
    head = ("metric", "kind", "who", "labels", "meaning")
    rows = [
        (
            f"`{metric.name}`",
            str(metric.kind),
            " and ".join(metric.roles) or "stage",
            ", ".join(f"`{label}`" for label in metric.labels),
            metric.help,
        )
        for metric in metrics.ALL
    ]
    others = ", ".join(f"`{name}`" for names in metrics.VLLM.values() for name in names)
    parts = [NOTE, "# Metrics", METRICS, table(head, rows), "## Names of vLLM's", VLLM + others]
    return "\n\n".join(parts) + "\n"


METRICS = """\
What `/metrics` of a worker's HTTP server (`http_listen`) shows, as Prometheus text or, if the
scraper asks for it, as OpenMetrics. Names that other servers have too follow vLLM's. Every metric
has the labels `model_name`, `engine` (always 0) and `role`; none ever has a request in a label.
Rates are left to the reader: sum counters first, then divide. Counters start at 0 with each life
of a worker. [How to watch a service](../how-to/watch-a-service.md)."""


VLLM = """\
Endpoint pickers, autoscalers and dashboards that were made for vLLM read a target as it is: it
shows these metrics by vLLM's names too, with vLLM's labels `model_name` and `engine`:
"""


def simulation_page() -> str:
    """Every field of a simulation's YAML."""
    rows = [
        row
        for row in fields(Simulation, "", Simulation.model_json_schema())
        if not row[0].startswith("`speculation.")
    ]
    once = said_once(rows, "traffic.answerTokens", "traffic.promptTokens")
    described = list(said_once(list(once), "draft", "target"))
    return "\n\n".join([NOTE, "# Simulation", SIMULATION, table(FIELD_HEAD, described)]) + "\n"


SIMULATION = """\
The YAML that `outrider simulate FILE` reads. An unknown key or a value that is not allowed is
refused, naming the path and what is allowed. Files named in it are relative to it. Fields below
`speculation` are those below `spec.speculation` of a [service](service.md). [What is simulated and
what not](../concepts/simulator.md)."""


def distillation_page() -> str:
    """Every field of a distillation's recipe."""
    rows = fields(Recipe, "", Recipe.model_json_schema())
    return "\n\n".join([NOTE, "# Distillation", DISTILLATION, table(FIELD_HEAD, list(rows))]) + "\n"


DISTILLATION = """\
The YAML that `outrider distil RECIPE` reads. An unknown key or a value that is not allowed is
refused, naming the path and what is allowed. Files and folders named in it are relative to it.
[How a draft is made](../how-to/distil-a-draft.md)."""


def main() -> int:
    """Write the pages."""
    PAGES.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (PAGES / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
