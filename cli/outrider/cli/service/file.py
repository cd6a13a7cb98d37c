"""The service that a command reads from a YAML file, with every problem as one sentence.

What may be in it is `outrider.operator.spec`'s and `rules`'; here is only what one machine cannot
do of it.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from outrider.cli.failures import BadInput
from outrider.cli.models.argument import LOCAL
from outrider.cli.service.rules import check_rules
from outrider.cli.terminal.text import read_text
from outrider.operator.spec import (
    SpecError,
    SpeculativeService,
    Suspend,
    load,
)

_PODS = ("image", "resources", "podTemplate", "cache", "update")
IGNORED = (
    *(f"spec.{role}.{key}" for role in ("target", "draft") for key in _PODS),
    "spec.target.scaling",
    "spec.draft.scaling.maxReplicas",
    *(f"spec.{role}.model.tokenSecretRef" for role in ("target", "draft")),
    *(f"spec.{key}" for key in ("access", "draftsOf", "topology", "networkPolicy")),
    *(f"spec.{key}" for key in ("podDisruptionBudget", "monitoring", "inferencePool")),
    *(f"metadata.{key}" for key in ("namespace", "labels", "annotations")),
)
"""Paths that mean something in a cluster only, with all that is below them."""


def read_service(file: Path) -> SpeculativeService:
    """The service in `file`, relative `file://` URIs taken from its folder; raises `BadInput`."""
    return located_service(read_text(file), file)


def located_service(text: str, file: Path) -> SpeculativeService:
    """The service in the text of `file`, as `read_service` returns it."""
    service = parse_service(text, str(file)).at_folder(str(file.absolute().parent))
    if lines := list(missing_models(service)):
        raise _refusal(str(file), lines)
    return service


def parse_service(text: str, where: str) -> SpeculativeService:
    """Return the service of a YAML text that this machine can run, with a line on stderr for each
    field that is gone; raises `BadInput` with every problem on a line that begins with `where`."""

    def warn(sentence: str) -> None:
        print(f"{where}: {sentence}", file=sys.stderr)

    try:
        service = load(text, warn)
        check_rules(service, warn)
    except SpecError as error:
        raise _refusal(where, str(error).splitlines()) from None
    if lines := list(beyond_one_machine(service)):
        raise _refusal(where, lines)
    return service


def _refusal(where: str, lines: list[str]) -> BadInput:
    return BadInput("\n".join(f"{where}: {line}" for line in lines))


def beyond_one_machine(service: SpeculativeService) -> Iterator[str]:
    """Yield fields that need a cluster, or that no worker serves."""
    spec = service.spec
    for name, role in (("target", spec.target), ("draft", spec.draft)):
        if role is not None and role.parallelism.nodes > 1:
            nodes = role.parallelism.nodes
            yield f"spec.{name}.parallelism.nodes: {nodes} is not served on one machine; allowed: 1"
    if spec.suspend is Suspend.SUSPENDED:
        yield "spec.suspend: the service is Suspended; allowed: Running"


def missing_models(service: SpeculativeService) -> Iterator[str]:
    """Yield models whose absolute path does not exist on this machine; pods have their own."""
    for name, role in (("target", service.spec.target), ("draft", service.spec.draft)):
        if role is None or not role.model.uri.startswith(LOCAL):
            continue
        path = role.model.uri.removeprefix(LOCAL)
        if not os.path.exists(path):
            yield f"spec.{name}.model.uri: {path} does not exist on this machine"
