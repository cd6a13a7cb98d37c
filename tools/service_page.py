"""The reference page of the custom resources, from the types, rules and columns themselves.

Leaves the other pages to `reference`, which writes this one too.
"""

import inspect
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic.fields import FieldInfo
from tools.tables import NOTE, REQUIRED, shown, table

from outrider.cli.service.file import IGNORED
from outrider.operator.crd.definitions import SCALER_COLUMNS, SERVICE_COLUMNS, Column
from outrider.operator.crd.schema import rules_of, structural
from outrider.operator.spec import SpecPart, SpeculativeRoleScaler, SpeculativeService
from outrider.operator.spec.scaler import ScalerSpec
from outrider.operator.spec.status import ScalerStatus, ServiceStatus
from outrider.operator.spec.validation_errors import allowed

Row = tuple[str, ...]
FIELD_HEAD = ("field", "allowed", "default", "meaning")


def service_page() -> str:
    """Fields, rules, status and columns of both kinds."""
    parts = [NOTE, "# SpeculativeService", INTRODUCTION, service_fields()]
    parts += ["## Rules", RULES, rule_table(SpeculativeService), "## Status", STATUS]
    parts += [status_table(ServiceStatus), "## Columns", COLUMNS, column_table(SERVICE_COLUMNS)]
    parts += ["# SpeculativeRoleScaler"]
    parts += [SCALERS, scaler_fields(), rule_table(SpeculativeRoleScaler)]
    parts += [status_table(ScalerStatus), column_table(SCALER_COLUMNS)]
    return "\n\n".join(parts) + "\n"


INTRODUCTION = """\
What `kubectl apply` takes where [the CRDs](../../charts/outrider/files/crds) are installed,
and what `outrider run -f` and `outrider profile -f` read: one YAML document. An unknown key, a key
that is there twice or a value that is not allowed is refused, naming the path and what is allowed.
A *Kubernetes name* has lower-case letters, digits, dashes and dots, at most 253 characters. A field
"as in `spec.target`" is as there, with all below it. The last column says
what `outrider run` obeys; it ignores the rest. It
starts `replicas` workers of each role, one where that is left out, each of `parallelism.tensor`
processes, and refuses `nodes` above 1 and a service that is Suspended. [Examples](../../examples)
to start from are `smollm2.yaml`, `pool.yaml` (two targets, a pool of drafts), `pool-guest.yaml` (a
target of another family with that pool's drafts), `pipeline.yaml` (a target cut over two stages),
`llama-8b.yaml` (a GPU for each role), `llama-70b.yaml` (8 GPUs), `llama-70b-same-pod.yaml` (the
same in one pod)."""

RULES = """\
What must hold between fields, beside what each field allows. The API server and `outrider run` say
it in the same words. Rules of changes are the API server's."""

STATUS = """\
What the operator reports, in a cluster; below `status.draft` are the same fields as below
`status.target`. A condition has a status (True, False or Unknown), a reason
of one word and a message of one sentence:
[all of them, and what to do](../operator.md#conditions-reasons-and-what-to-do)."""

COLUMNS = """\
What `kubectl get specsvc` shows; those that are marked, with `-o wide` only."""

SCALERS = """\
The operator makes one for each role whose `scaling.mode` is External, named by service and role
(`chat-draft`). Point a HorizontalPodAutoscaler or KEDA at it: it has the subresource `scale`."""


def service_fields() -> str:
    """Table of the fields of a service, and which of them `outrider run` uses."""
    rows = fields(SpeculativeService, "", SpeculativeService.model_json_schema())
    described = [
        (*row, "" if ignored(row[0].strip("`")) else "yes")
        for row in said_once(list(rows), "spec.draft", "spec.target")
    ]
    return table((*FIELD_HEAD, "run"), described)


def said_once(rows: Sequence[Row], part: str, twin: str) -> Iterator[Row]:
    """Yield the rows of fields; a field of `part` that is as that of `twin`, with all below both,
    names it, and those below are left out."""
    known = {path.strip("`"): said for path, *said in rows}
    whole = ""
    for row in rows:
        path = row[0].strip("`")
        if whole and path.startswith(f"{whole}."):
            continue
        other = f"{twin}{path.removeprefix(part)}"
        if path.startswith(f"{part}.") and below(path, known) == below(other, known):
            whole = path
            yield (row[0], "", "", f"As in `{twin}`.")
        else:
            yield row


def below(path: str, known: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """What is said of a field and of those below it, by the rest of their paths."""
    return {
        one.removeprefix(path): said
        for one, said in known.items()
        if one == path or one.startswith(f"{path}.")
    }


def scaler_fields() -> str:
    """Table of the fields of a scaler."""
    schema = SpeculativeRoleScaler.model_json_schema()
    return table(FIELD_HEAD, list(fields(ScalerSpec, "spec.", schema)))


def fields(part: type[SpecPart], prefix: str, root: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Path, allowed values, default and meaning of each field; parts are walked into."""
    schema = root["$defs"].get(part.__name__, root)["properties"]
    for field in part.model_fields.values():
        path = f"{prefix}{field.alias}"
        inner = part_of(field.annotation)
        words = "" if inner else brief(allowed(schema[field.alias], root))
        yield f"`{path}`", words, default(field), str(field.description)
        if inner:
            yield from fields(inner, f"{path}.", root)


def brief(words: str) -> str:
    """What a field allows, in the short words of a table."""
    return words.replace(NAME, "Kubernetes name").removeprefix("an ").removeprefix("a ")


NAME = "lower-case letters, digits, dashes and dots, at most 253 characters"
"""What most fields with names of objects allow."""


def default(field: FieldInfo) -> str:
    """Default of a field; nothing for a part, whose own fields have theirs."""
    if field.is_required():
        return REQUIRED
    value = field.get_default(call_default_factory=True)
    return "" if isinstance(value, SpecPart) else shown(value)


def ignored(path: str) -> bool:
    """True if `outrider run` ignores a field."""
    return any(path == head or path.startswith(f"{head}.") for head in IGNORED)


def part_of(annotation: Any) -> type[SpecPart] | None:
    """The part that a field holds, optional or not; None if it holds a value."""
    kinds = (annotation, *typing.get_args(annotation))
    return next((k for k in kinds if inspect.isclass(k) and issubclass(k, SpecPart)), None)


def rule_table(kind: type[SpecPart]) -> str:
    """Table of rules: the fields that break one, and what must hold."""
    places: dict[tuple[str, str], list[str]] = {}
    for path, rule in rules_of(structural(kind)):
        when = "change" if "oldSelf" in rule["rule"] else "always"
        place = f"{path}{rule.get('fieldPath', '')}".removeprefix(".")
        places.setdefault((rule["message"], when), []).append(f"`{place}`")
    rows = [(", ".join(found), message, when) for (message, when), found in places.items()]
    return table(("field", "what must hold", "when"), rows)


def status_table(kind: type[SpecPart]) -> str:
    """Table of the status that the operator writes of one kind."""
    rows = status_fields(kind, "status.")
    once = [row for row in rows if not row[0].startswith("`status.draft.")]
    return table(("field", "meaning"), once)


def status_fields(kind: type[SpecPart], prefix: str) -> Iterator[tuple[str, str]]:
    """Path and meaning of each field, also of those that are computed."""
    for field in (*kind.model_fields.values(), *kind.model_computed_fields.values()):
        inner = part_of(getattr(field, "annotation", None))
        several = "[]" if typing.get_origin(getattr(field, "annotation", None)) is tuple else ""
        path = f"{prefix}{field.alias}{several}"
        yield f"`{path}`", str(field.description)
        if inner:
            yield from status_fields(inner, f"{path}.")


def column_table(columns: Iterable[Column]) -> str:
    """Table of the columns of `kubectl get` of one kind."""
    rows = [
        (f"{column.name} (wide)" if column.wide else column.name, column.description)
        for column in columns
    ]
    return table(("column", "meaning"), rows)
