"""The service that the options of `outrider serve` describe, and its YAML.

Leaves running it to `run`, which takes it as it takes one that was read from a file.
"""

from dataclasses import dataclass
from typing import Any

import yaml

from outrider.cli.failures import BadInput
from outrider.cli.model_argument import borrows_embedding, model_name, service_name
from outrider.cli.service_file import parse_service
from outrider.contract.settings import Device, Dtype
from outrider.operator.naming import API_VERSION, KIND
from outrider.operator.spec import DeviceKind, EmbeddingsFrom, SpeculativeService


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What `outrider serve` was asked for; None leaves the YAML's default."""

    target: str
    """URI of the model whose text is served."""
    draft: str | None = None
    """URI of its draft."""
    borrow_embedding: bool = False
    """The draft holds no embedding, even if its config does not say so."""
    name: str | None = None
    """Model name that requests use; None: that of the model."""
    context: int | None = None
    max_running: int | None = None
    dtype: Dtype | None = None
    """Of both models."""
    threads: int | None = None
    """Of the target."""
    device: Device | None = None
    """Of both models."""
    kv_memory: str | None = None
    """Of the target."""
    placement: str | None = None


def document(served: Served) -> dict[str, Any]:
    """Return the fields of the YAML; raises `BadInput` for an option that needs --draft."""
    own = _given(
        threads=served.threads,
        maxContext=served.context,
        maxRunning=served.max_running,
        kvMemory=served.kv_memory,
    )
    known = served.name or model_name(served.target)
    name = service_name(known)
    model = {"uri": served.target} | _given(servedName=None if known == name else known)
    spec = {"target": {"model": model} | _given(engine=_of_both(served) | own or None)}
    if served.draft is not None:
        spec["draft"] = _draft(served, served.draft)
    elif served.placement is not None or served.borrow_embedding:
        option = "--placement" if served.placement is not None else "--borrow-embedding"
        raise BadInput(f"{option} needs --draft MODEL.")
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}


def service_of(served: Served) -> SpeculativeService:
    """Return the service; raises `BadInput` with every problem."""
    return parse_service(_yaml(served), "outrider serve")


def yaml_of(served: Served, command: str) -> str:
    """Return the YAML that the options stand for, below the command that it is from."""
    return (
        f"# {' '.join(command.split())}\n"
        "# Addresses, ports, API keys and TLS are options of `outrider run -f`, not part of it.\n"
        "# Before `kubectl apply -f`: threads are those of this machine, and a file:// model is a "
        "path on it, which pods lack; hf:// is fetched there.\n"
        f"{_yaml(served)}"
    )


def _yaml(served: Served) -> str:
    return yaml.safe_dump(document(served), sort_keys=False, allow_unicode=True)


def _draft(served: Served, uri: str) -> dict[str, Any]:
    borrows = served.borrow_embedding or borrows_embedding(uri)
    lender = str(EmbeddingsFrom.TARGET) if borrows else None
    model = {"uri": uri} | _given(embeddingsFrom=lender)
    return {"model": model} | _given(engine=_of_both(served) or None, placement=served.placement)


def _of_both(served: Served) -> dict[str, str]:
    """Return the engine settings that both models have."""
    return _given(
        device=None if served.device is None else str(DeviceKind[served.device.name]),
        dtype=None if served.dtype is None else str(served.dtype),
    )


def _given(**fields: Any) -> dict[str, Any]:
    """Return the fields that have a value."""
    return {key: value for key, value in fields.items() if value is not None}
