"""The table of `rules.yaml`: for each rule between fields an object that keeps it and one that
breaks it. A unit test feeds them to the command line, a test of tests/kube to a real API server."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from outrider.operator.cluster.kinds import ROLE_SCALER, SERVICE, ObjectKind
from outrider.operator.crd.definitions import DEFINITIONS
from outrider.operator.crd.schema import rules_of
from tests.merge_patch import laid_over

Object = dict[str, Any]
TABLE = Path(__file__).with_suffix(".yaml")
RULES = tuple(rule for kind in DEFINITIONS for rule in rules_of(kind.schema()))
SMALL_SERVICE = {
    "name": "rules",
    "target": {"model": {"uri": "hf://org/large"}},
    "draft": {"model": {"uri": "hf://org/small"}},
}
SMALL_SCALER = {"name": "rules-draft", "service": "rules", "role": "Draft", "replicas": 2}


@dataclass(frozen=True, slots=True)
class Entry:
    """One of the table."""

    name: str
    kind: ObjectKind
    breaks: tuple[str, ...]
    """Errors of each of `bad`, as `path: message`."""
    before: Object | None
    """Object that all of `good` and `bad` are changes of; None: none has to be there."""
    good: tuple[Object, ...]
    bad: tuple[Object, ...]


def line(path: str, rule: Object) -> str:
    """Return the error of a rule that is broken."""
    return f"{path}{rule.get('fieldPath', '')}: {rule['message']}".removeprefix(".")


def _entries() -> Iterator[Entry]:
    table = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    for section, kind, small in (
        ("services", SERVICE, SMALL_SERVICE),
        ("scalers", ROLE_SCALER, SMALL_SCALER),
    ):
        for name, entry in table[section].items():
            yield Entry(
                name,
                kind,
                tuple(_lines(entry["breaks"])),
                _object(kind, small, entry["before"]) if "before" in entry else None,
                tuple(_object(kind, small, one) for one in _several(entry["good"])),
                tuple(_object(kind, small, one) for one in _several(entry["bad"])),
            )


def _several(one: Any) -> list[Any]:
    return one if isinstance(one, list) else [one]


def _lines(breaks: str | list[str]) -> Iterator[str]:
    for one in _several(breaks):
        if "{target,draft}" in one:
            yield from (one.replace("{target,draft}", role) for role in ("target", "draft"))
        else:
            yield one


def _object(kind: ObjectKind, small: Mapping[str, Any], over: Mapping[str, Any]) -> Object:
    spec = laid_over(small, over)
    metadata = {"name": spec.pop("name")}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": metadata,
        "spec": spec,
    }


ENTRIES = tuple(_entries())
