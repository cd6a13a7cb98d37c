"""A service whose target is of another depth, for as long as it is measured."""

import argparse
import contextlib
import shutil
import sys
from pathlib import Path
from typing import Any

from bench.proportion.inert_layers import deepen, freed_draft, prepared_target
from outrider.contract.files import user_cache
from outrider.operator.spec import SpeculativeService
from outrider.worker.model.source import Source

NODES_AHEAD = {1: 24, 3: 64, 8: 96}
"""By depth: a pass that takes longer leaves a draft time for more nodes (the demo's own value for
its own depth, the default for the deepest)."""
MAX_CONTEXT = 1024
"""So that KV of the deepest target fits beside that of the others."""


@contextlib.contextmanager
def deeper(service: SpeculativeService, depth: int, options: argparse.Namespace) -> Any:
    """Yield the service with a target of another depth, and the bytes of the checkpoint made.

    The checkpoint is deleted afterwards unless `--keep` says otherwise.
    """
    if depth == 1:
        yield service, 0
        return
    folder = user_cache() / "bench" / f"depth-{depth}"
    assert service.spec.draft is not None
    try:
        size = deepen(prepared_target(options.file), depth, folder / "target")
        freed_draft(Source.parse(service.spec.draft.model.source).resolve(), folder / "draft")
        print(f"{depth} times the depth: {size / 1e6:.0f} MB in {folder}", file=sys.stderr)
        yield with_models(service, folder / "target", folder / "draft"), size
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)


def with_models(service: SpeculativeService, target: Path, draft: Path) -> SpeculativeService:
    """Return the service with checkpoints in other folders."""
    spec = service.spec
    assert spec.draft is not None
    changed = {}
    for name, role, folder in (("target", spec.target, target), ("draft", spec.draft, draft)):
        model = role.model.model_copy(update={"uri": f"file://{folder}"})
        changed[name] = role.model_copy(update={"model": model})
    return service.model_copy(update={"spec": spec.model_copy(update=changed)})
