"""Writes the reference pages that follow from the code: `python -m tools.reference`.

docs/reference/cli.md, service.md, settings.md, metrics.md and modules.md; the words are those of
the options, fields and modules themselves, and a test compares. Leaves other pages to people.
"""

import ast
import dataclasses
import inspect
import sys
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from typer.main import get_command

from outrider.cli.app import app
from outrider.contract import metrics, settings
from outrider.operator.problems import allowed
from outrider.operator.spec import Part, SpeculativeService

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "reference"
FOLDERS = ("cli", "operator", "worker", "kernels", "protos")
NOTE = "<!-- Written by `python -m tools.reference`; change the code it reads instead. -->"
REQUIRED = "required"


def pages() -> dict[str, str]:
    """Text of each page by its file name."""
    return {
        "cli.md": cli_page(),
        "service.md": service_page(),
        "settings.md": settings_page(),
        "metrics.md": metrics_page(),
        "modules.md": modules_page(),
    }


def cli_page() -> str:
    """Every command with its options, as `--help` has them."""
    group: Any = get_command(app)
    parts = [NOTE, "# Command line", str(group.help), EXITS]
    parts += [section(name, command) for name, command in commands(group)]
    return "\n\n".join(parts) + "\n"


def commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every command by its name; those of a group follow each other."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


EXITS = """\
Text and JSON go to stdout; progress and errors go to stderr. With `run --prompt` the figures follow
the text on stdout, with `generate` they go to stderr.

| exit status | meaning |
|---|---|
| 0 | done |
| 1 | a worker stopped or never got ready, nothing answers, or a load found a wrong text |
| 2 | the input can be mended: an option, the YAML file, a field of the request |
| 130, 143 | Ctrl-C, SIGTERM |"""


def section(name: str, command: Any) -> str:
    """One command: what it does, examples, options."""
    context = typer.Context(command, info_name=f"outrider {name}")
    rows = [
        (f"`{' '.join(names(parameter, context))}`", f"{parameter.help}{default(parameter)}")
        for parameter in command.params
    ]
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
    """What the help text leaves out: whether it must be given, and the value it has else."""
    if parameter.required:
        return f" [{REQUIRED}]"
    shown = parameter.default not in (None, False)
    return f" [default: {parameter.default}]" if shown else ""


def service_page() -> str:
    """Every field of `SpeculativeService`."""
    rows = list(fields(SpeculativeService, "", SpeculativeService.model_json_schema()))
    head = ("field", "allowed", "default", "meaning")
    return "\n\n".join([NOTE, "# SpeculativeService", SERVICE, table(head, rows)]) + "\n"


SERVICE = """\
What `outrider run -f` and `outrider profile -f` read: one YAML document. An unknown key, a key that
is there twice or a value that is not allowed is refused, naming the path and what is allowed. With
`placement: Colocated` the draft has one replica, and of its `engine` only `dtype` may be set.
`examples/smollm2.yaml` is one to start from."""


def fields(part: type[Part], prefix: str, root: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Path, allowed values, default and meaning of each field; parts are walked into."""
    schema = root["$defs"].get(part.__name__, root)["properties"]
    for field in part.model_fields.values():
        path = f"{prefix}{field.alias}"
        inner = part_of(field.annotation)
        words = "" if inner else allowed(schema[field.alias], root)
        value = "" if inner and field.default else shown(field.default)
        value = REQUIRED if field.is_required() else value
        yield f"`{path}`", words, value, str(field.description)
        if inner:
            yield from fields(inner, f"{path}.", root)


def part_of(annotation: Any) -> type[Part] | None:
    """The part that a field holds, optional or not; None if it holds a value."""
    kinds = (annotation, *typing.get_args(annotation))
    return next((k for k in kinds if inspect.isclass(k) and issubclass(k, Part)), None)


def settings_page() -> str:
    """Every key of a worker's settings file."""
    parts = [NOTE, "# Worker settings", SETTINGS]
    for kind, where in (
        (settings.WorkerSettings, "The file"),
        (settings.ModelSettings, "`model` and `colocated`"),
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
    return (
        kind.__name__ if inspect.isclass(kind) else str(kind).replace(f"{settings.__name__}.", "")
    )


def metrics_page() -> str:
    """Every metric of a worker."""
    head = ("metric", "kind", "who", "labels", "meaning")
    rows = [
        (
            f"`{metric.name}`",
            str(metric.kind),
            " and ".join(metric.roles),
            ", ".join(f"`{label}`" for label in metric.labels),
            metric.help,
        )
        for metric in metrics.ALL
    ]
    bounds = [
        f"- `{metric.name}`: {', '.join(f'{bound:g}' for bound in metric.buckets)}"
        for metric in metrics.ALL
        if metric.buckets
    ]
    parts = [NOTE, "# Metrics", METRICS, table(head, rows), "## Buckets", "\n".join(bounds)]
    return "\n\n".join(parts) + "\n"


METRICS = """\
What `/metrics` of a worker's HTTP server (`http_listen`) shows, as Prometheus text or, if the
scraper asks for it, as OpenMetrics. Names that other servers have too follow vLLM's. Every metric
has the labels `model_name`, `engine` (always 0) and `role`; none ever has a request in a label.
Rates are left to whoever reads: sum counters first, then divide. Counters start at 0 with each life
of a worker. [How to watch a service](../how-to/watch-a-service.md)."""


def modules_page() -> str:
    """Every module in one sentence, by folder."""
    parts = [NOTE, "# Modules", "The first sentence of each module's own description."]
    for folder in FOLDERS:
        rows = list(modules(ROOT / folder / "outrider"))
        parts.append(f"## {folder}/outrider\n\n{table(('module', 'what it does'), rows)}")
    return "\n\n".join(parts) + "\n"


def modules(folder: Path) -> Iterator[tuple[str, str]]:
    """Name and first sentence of each module below `folder` that describes itself."""
    for path in sorted(folder.rglob("*.py")):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        if text and "_pb2" not in path.name:
            name = path.relative_to(folder).with_suffix("").as_posix().removesuffix("/__init__")
            yield f"`{name}`", text.split("\n\n")[0]


def shown(value: Any) -> str:
    """A default for people; parts and None show as nothing given."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if dataclasses.is_dataclass(value):
        return "all defaults"
    return "empty" if value in ((), {}) else str(value)


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    escaped = ([" ".join(cell.split()).replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in escaped)


def main() -> int:
    """Writes the pages."""
    PAGES.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (PAGES / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
