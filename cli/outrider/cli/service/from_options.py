"""The service that the options of `outrider serve` describe, and its YAML.

Leaves running it to `run`, which takes it as it takes one that was read from a file.
"""

from collections.abc import Mapping
from typing import Any

import yaml

from outrider.cli.failures import BadInput
from outrider.cli.models.argument import LOCAL, borrows_embedding, model_name, service_name
from outrider.cli.service.file import parse_service
from outrider.contract.settings import Dtype
from outrider.operator.naming import API_VERSION, KIND
from outrider.operator.spec import EmbeddingsFrom, SpeculativeService


def document(
    target: str,
    *,
    draft: str | None = None,
    borrow_embedding: bool = False,
    context: int | None = None,
    max_running: int | None = None,
    dtype: Dtype | None = None,
    threads: int | None = None,
    placement: str | None = None,
) -> dict[str, Any]:
    """Return the YAML's fields for the URIs of a target and its draft; None leaves its default.

    `dtype` is that of both models, `threads` are the target's. `borrow_embedding`: the draft holds
    none, even if its config does not say so. Raises `BadInput` for an option that needs --draft.
    """
    both = _given(dtype=dtype and str(dtype))
    own = _given(threads=threads, maxContext=context, maxRunning=max_running)
    known = model_name(target)
    name = service_name(known)
    model = {"uri": target} | _given(servedName=None if known == name else known)
    spec = {"target": {"model": model} | _given(engine=both | own or None)}
    if draft is not None:
        borrows = borrow_embedding or borrows_embedding(draft)
        lender = str(EmbeddingsFrom.TARGET) if borrows else None
        lent = {"uri": draft} | _given(embeddingsFrom=lender)
        spec["draft"] = {"model": lent} | _given(engine=both or None, placement=placement)
    elif placement is not None or borrow_embedding:
        option = "--placement" if placement is not None else "--borrow-embedding"
        raise BadInput(f"{option} needs --draft MODEL.")
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}


def service_of(document: Mapping[str, Any]) -> SpeculativeService:
    """Return the service; raises `BadInput` with every problem."""
    return parse_service(_yaml(document), "outrider serve")


def yaml_of(document: Mapping[str, Any], command: str) -> str:
    """Return the YAML below the command that it is from."""
    return (
        f"# {' '.join(command.split())}\n"
        "# Addresses, ports, API keys and TLS are options of `outrider run -f`, not part of it.\n"
        f"{_of_this_machine(document['spec'])}"
        f"{_yaml(document)}"
    )


def _of_this_machine(spec: Mapping[str, Any]) -> str:
    """Return a comment on what is otherwise in a cluster; empty: nothing is."""
    words = []
    if "threads" in spec["target"].get("engine", {}):
        words.append("threads are those of this machine")
    if any(role["model"]["uri"].startswith(LOCAL) for role in spec.values()):
        words.append("a file:// model is a path here, which pods lack; hf:// is fetched there")
    return f"# Before `kubectl apply -f`: {'; '.join(words)}.\n" if words else ""


def _yaml(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True)


def _given(**fields: Any) -> dict[str, Any]:
    """Return the fields that have a value."""
    return {key: value for key, value in fields.items() if value is not None}
