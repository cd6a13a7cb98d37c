"""YAML of a service whose devices are shared out as `outrider profile --gpus N` recommends."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from outrider.cli.failures import BadInput
from outrider.cli.service.rules import check_rules
from outrider.contract.settings import Role
from outrider.operator.spec import Placement, SpecError, SpeculationMode, load

GPU = "nvidia.com/gpu"
LOCAL = "file://"


def write_service(file: Path, found: Mapping[str, Any], to: Path) -> None:
    """Write the service of `file` with the split that is recommended; raises `BadInput`."""
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    one, spec = found["recommended"], document["spec"]
    for role in (Role.TARGET, Role.DRAFT):
        part = spec[role]
        if one[role]:
            part["parallelism"] = (part.get("parallelism") or {}) | {"tensor": one[role]}
            if found["kind"] == "gpus":
                _limit_gpus(part, one[role])
        _keep_local(part["model"], file, to)
    if one["draft"]:
        spec["draft"]["placement"] = str(Placement.SEPARATE)
        changes: dict[str, Any] = {"maxRows": one["rows"], "nodesAhead": one["nodes_ahead"]}
    else:
        changes = {"mode": str(SpeculationMode.DISABLED)}
    spec["speculation"] = (spec.get("speculation") or {}) | changes
    text = yaml.safe_dump(document, sort_keys=False)
    try:
        check_rules(load(text))
        to.write_text(text, encoding="utf-8")
    except SpecError as error:
        raise BadInput(f"{to}: this split is not a service: {error}") from None
    except OSError as error:
        raise BadInput(f"{to}: {error.strerror}") from None


def _limit_gpus(part: dict[str, Any], count: int) -> None:
    resources = part.get("resources") or {}
    limits = (resources.get("limits") or {}) | {GPU: count}
    part["resources"] = resources | {"limits": limits}


def _keep_local(model: dict[str, Any], file: Path, to: Path) -> None:
    """Let a path relative to the file's folder mean the same from another folder."""
    uri = str(model.get("uri", ""))
    path = uri.removeprefix(LOCAL)
    if uri.startswith(LOCAL) and not path.startswith("/") and to.parent != file.parent:
        model["uri"] = f"{LOCAL}{(file.absolute().parent / path).resolve()}"
