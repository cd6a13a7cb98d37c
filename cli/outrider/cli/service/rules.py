"""Rules between fields of a service, evaluated as an API server does: from its schema, in CEL.

Where the rules are is `outrider.operator.spec`'s. Those about a change are the API server's alone.
"""

import enum
import functools
import importlib.util
from collections.abc import Iterator, Sequence
from typing import Any

from outrider.operator.crd.schema import rules_of, structural
from outrider.operator.spec import SpecError, SpecPart
from outrider.operator.spec.service import Warn, ignore

LIBRARY = "cel_expr_python"
UNCHECKED = "rules between fields are not checked: cel-expr-python is missing, as for Python 3.15"


def check_rules(whole: SpecPart, warn: Warn = ignore) -> None:
    """Raise `SpecError` with a line for each rule that does not hold; `warn` is told where none can
    be checked."""
    if not _is_installed():
        warn(UNCHECKED)
    if lines := list(broken_rules(whole)):
        raise SpecError("\n".join(lines))


def broken_rules(whole: SpecPart) -> Iterator[str]:
    """Yield a line for each rule that does not hold, in the words of the API server."""
    document = _visible(whole)
    for path, line, program in _compiled(type(whole)):
        part = _part(document, path)
        if not part:  # the rule of a part that is left out
            continue
        holds = program.eval(data={"self": part}).value()
        if not isinstance(holds, bool):
            raise RuntimeError(f"the rule {line!r} gives {holds!r} for {part!r}")
        if not holds:
            yield line


def rules_broken_anyway(kind: type[SpecPart], document: dict[Any, Any]) -> Iterator[str]:
    """Yield a line for each rule that does not hold in a document that has other problems.

    A rule about what is missing or of another type gives no truth value, and is left out.
    """
    plain = _plain(document)
    for path, line, program in _compiled(kind):
        part = _part(plain, path)
        if isinstance(part, dict) and program.eval(data={"self": part}).value() is False:
            yield line


def _part(document: Any, path: Sequence[str]) -> Any:
    """Return what a path leads to; an empty mapping if that is nothing."""
    for key in path:
        document = document.get(key, {}) if isinstance(document, dict) else {}
    return document


def _plain(value: Any) -> Any:
    """Return a value of YAML as JSON has it."""
    if isinstance(value, dict):
        return {str(key): _plain(below) for key, below in value.items() if below is not None}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    fits = not isinstance(value, int) or -(2**63) <= value < 2**63
    return value if isinstance(value, str | int | float) and fits else str(value)


def _visible(value: Any) -> Any:
    """Return a value as rules see it: as JSON, with defaults, and with nothing in free mappings."""
    if isinstance(value, SpecPart):
        fields = type(value).model_fields.items()
        found = {field.alias: getattr(value, name) for name, field in fields}
        return {key: _visible(below) for key, below in found.items() if below is not None}
    if isinstance(value, tuple):
        return [_visible(one) for one in value]
    if isinstance(value, dict):
        return {}
    return str(value) if isinstance(value, enum.Enum) else value


def _is_installed() -> bool:
    return importlib.util.find_spec(LIBRARY) is not None


@functools.cache
def _compiled(kind: type[SpecPart]) -> list[tuple[list[str], str, Any]]:
    """Return each rule of a kind that is not about a change: the keys that lead to its part, the
    line that says that it does not hold, and its program; none where CEL is missing."""
    if not _is_installed():
        return []
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_strings

    extensions = [ext_strings.ExtStrings()]
    environment = cel.NewEnv(variables={"self": cel.Type.DYN}, extensions=extensions)
    return [
        (
            path.split(".")[1:],
            f"{path}{rule.get('fieldPath', '')}: {rule['message']}".removeprefix("."),
            environment.compile(rule["rule"]),
        )
        for path, rule in rules_of(structural(kind))
        if "oldSelf" not in rule["rule"]
    ]
