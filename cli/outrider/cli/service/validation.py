"""What is wrong with the YAML of services, and what of it one machine cannot do.

What may be in it is `outrider.operator.spec`'s and `rules`'.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from outrider.cli.service.file import IGNORED, beyond_one_machine, missing_models
from outrider.cli.service.rules import check_rules, rules_broken_anyway
from outrider.operator.cluster.kinds import INSTALL_LWS
from outrider.operator.spec import (
    Document,
    SpecError,
    SpeculativeService,
    checked_mapping,
    load_document,
    read_documents,
)

NOTHING = "expected a YAML document, found none"
_PROBLEM = re.compile(r"(?P<path>[A-Za-z][^\s:]*): (?P<message>.*)")


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a description."""

    path: str
    """Path of the field, as `spec.target.engine.threads`; empty: the document as a whole."""
    message: str
    """The value and what is allowed."""

    @classmethod
    def of(cls, line: str) -> "Problem":
        """Read one line of a `SpecError`."""
        found = _PROBLEM.fullmatch(line)
        return cls(found["path"], found["message"]) if found else cls("", line)

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found in one document."""

    number: int = 1
    """Number of the document, from 1."""
    document: Document | None = None
    """The document; None: it is not YAML, and its problem names the place."""
    name: str = ""
    """Name of the service; empty where there are errors."""
    errors: tuple[Problem, ...] = ()
    refused: tuple[Problem, ...] = ()
    """What `outrider run` refuses, on one machine."""
    ignored: tuple[str, ...] = ()
    """Paths that `outrider run` ignores."""
    warnings: tuple[str, ...] = ()
    """Sentences about fields that are gone."""
    needs: tuple[str, ...] = ()
    """Sentences on what a cluster must have for it."""
    models: Mapping[str, str] = field(default_factory=dict)
    """URIs by role."""
    drafting: str = ""
    """How a draft of another tokenizer drafts, where that is known."""

    def line(self, path: str = "") -> int | None:
        """Return the line of a field, or the first one, from 1; None for what is not YAML."""
        return None if self.document is None else self.document.line(path)

    @property
    def notes(self) -> Iterator[str]:
        """Yield a line for each thing that is for a cluster only."""
        for problem in self.refused:
            yield f"`outrider run` refuses it: {problem}"
        if self.ignored:
            yield f"`outrider run` ignores {', '.join(self.ignored)}"
        yield from self.needs
        if self.drafting:
            yield self.drafting


def check(text: str, folder: str = "/") -> tuple[Checked, ...]:
    """Return what is wrong with each document of a YAML text, at least one; what follows one that
    is not YAML is not read. Relative `file://` URIs are taken from a folder, an absolute path."""
    found = tuple(_checked(text, folder)) or (Checked(errors=(Problem("", NOTHING),)),)
    if len(found) == 1:
        return found
    several = Problem("", f"it is one of {len(found)} documents; allowed: one alone")
    return tuple(
        one if one.errors else replace(one, refused=(*one.refused, several)) for one in found
    )


def _checked(text: str, folder: str) -> Iterator[Checked]:
    number = 0
    try:
        for document in read_documents(text):
            number = document.number
            yield _of_document(document, folder)
    except SpecError as error:
        yield Checked(number + 1, errors=_problems(error))


def _of_document(document: Document, folder: str) -> Checked:
    number, warnings = document.number, list[str]()
    try:
        service = load_document(checked_mapping(document.value), warnings.append)
        check_rules(service, warnings.append)
    except SpecError as error:
        errors = (*_problems(error), *_further_problems(document.value, error))
        return Checked(number, document, errors=errors, warnings=tuple(warnings))
    located = service.at_folder(folder)
    refused = (*beyond_one_machine(service), *missing_models(located))
    return Checked(
        number,
        document,
        service.metadata.name,
        refused=tuple(map(Problem.of, refused)),
        ignored=tuple(_ignored(service)),
        warnings=tuple(warnings),
        needs=tuple(_needs(service)),
        models=_models(located),
    )


def _further_problems(document: Any, error: SpecError) -> Iterator[Problem]:
    """Yield the rules that do not hold beside the problems of an error, for other fields."""
    if not isinstance(document, dict):
        return
    known = {problem.path for problem in _problems(error)}
    for line in rules_broken_anyway(SpeculativeService, document):
        if (problem := Problem.of(line)).path not in known:
            yield problem


def _models(service: SpeculativeService) -> dict[str, str]:
    roles = {"target": service.spec.target, "draft": service.spec.draft}
    return {name: role.model.uri for name, role in roles.items() if role is not None}


def _problems(error: SpecError) -> tuple[Problem, ...]:
    return tuple(map(Problem.of, str(error).splitlines()))


def as_json(found: Sequence[Checked]) -> dict[str, Any]:
    """Return what was found in all documents as plain values."""
    return {
        "valid": not any(one.errors for one in found),
        "errors": list(_as_json(found, lambda one: one.errors)),
        "refused_by_run": list(_as_json(found, lambda one: one.refused)),
        "warnings": [sentence for one in found for sentence in one.warnings],
        "ignored_by_run": list(dict.fromkeys(path for one in found for path in one.ignored)),
        "drafting": [one.drafting for one in found if one.drafting],
        "needed_in_a_cluster": list(dict.fromkeys(words for one in found for words in one.needs)),
    }


def _as_json(
    found: Sequence[Checked], part: Callable[[Checked], tuple[Problem, ...]]
) -> Iterator[dict[str, Any]]:
    for one in found:
        for problem in part(one):
            yield {"document": one.number, "line": one.line(problem.path)} | asdict(problem)


def _needs(service: SpeculativeService) -> Iterator[str]:
    """Yield what a cluster must have that not every one has."""
    roles = (service.spec.target, service.spec.draft)
    if any(role is not None and role.parallelism.pods > 1 for role in roles):
        why = "as its replicas are several pods"
        yield f"in a cluster it needs LeaderWorkerSet, {why}: {INSTALL_LWS}"


def _ignored(service: SpeculativeService) -> Iterator[str]:
    """Yield the paths that are set and mean something in a cluster only."""
    data = service.model_dump(by_alias=True, exclude_unset=True)
    for path in IGNORED:
        part: Any = data
        for key in path.split("."):
            part = part.get(key) if isinstance(part, dict) else None
        if part is not None:
            yield path
