"""The service that the options of `outrider serve` describe, and its YAML.

Leaves running it to `run`, which takes it as it takes one that was read from a file.
"""

from dataclasses import dataclass
from typing import Any

import yaml

from outrider.cli.failures import BadInput
from outrider.cli.models.argument import LOCAL, borrows_embedding, model_name, service_name
from outrider.cli.service.file import parse_service
from outrider.contract.settings import Dtype
from outrider.operator.naming import API_VERSION, KIND
from outrider.operator.spec import EmbeddingsFrom, SpeculativeService


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What `outrider serve` was asked for; None leaves the YAML's default."""

    target: str
    """URI of the model whose text is served."""
    draft: str | None = None
    """URI of its draft."""
    borrow_embedding: bool = False
    """The draft holds no embedding, even if its config does not say so."""
    context: int | None = None
    max_running: int | None = None
    dtype: Dtype | None = None
    """Of both models."""
    threads: int | None = None
    """Of the target."""
    placement: str | None = None


def document(options: ServeOptions) -> dict[str, Any]:
    """Return the fields of the YAML; raises `BadInput` for an option that needs --draft."""
    own = _given(
        dtype=options.dtype and str(options.dtype),
        threads=options.threads,
        maxContext=options.context,
        maxRunning=options.max_running,
    )
    known = model_name(options.target)
    name = service_name(known)
    model = {"uri": options.target} | _given(servedName=None if known == name else known)
    spec = {"target": {"model": model} | _given(engine=own or None)}
    if options.draft is not None:
        spec["draft"] = _draft(options, options.draft)
    elif options.placement is not None or options.borrow_embedding:
        option = "--placement" if options.placement is not None else "--borrow-embedding"
        raise BadInput(f"{option} needs --draft MODEL.")
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}


def service_of(options: ServeOptions) -> SpeculativeService:
    """Return the service; raises `BadInput` with every problem."""
    return parse_service(_yaml(options), "outrider serve")


def yaml_of(options: ServeOptions, command: str) -> str:
    """Return the YAML that the options stand for, below the command that it is from."""
    return (
        f"# {' '.join(command.split())}\n"
        "# Addresses, ports, API keys and TLS are options of `outrider run -f`, not part of it.\n"
        f"{_of_this_machine(options)}"
        f"{_yaml(options)}"
    )


def _of_this_machine(options: ServeOptions) -> str:
    """Return a comment on what is otherwise in a cluster; empty: nothing is."""
    words = []
    if options.threads is not None:
        words.append("threads are those of this machine")
    if any(uri.startswith(LOCAL) for uri in (options.target, options.draft or "")):
        words.append("a file:// model is a path here, which pods lack; hf:// is fetched there")
    return f"# Before `kubectl apply -f`: {'; '.join(words)}.\n" if words else ""


def _yaml(options: ServeOptions) -> str:
    return yaml.safe_dump(document(options), sort_keys=False, allow_unicode=True)


def _draft(options: ServeOptions, uri: str) -> dict[str, Any]:
    borrows = options.borrow_embedding or borrows_embedding(uri)
    lender = str(EmbeddingsFrom.TARGET) if borrows else None
    model = {"uri": uri} | _given(embeddingsFrom=lender)
    engine = options.dtype and {"dtype": str(options.dtype)}
    return {"model": model} | _given(engine=engine, placement=options.placement)


def _given(**fields: Any) -> dict[str, Any]:
    """Return the fields that have a value."""
    return {key: value for key, value in fields.items() if value is not None}
