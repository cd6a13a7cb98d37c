"""The folder in which the run's commands are given, and what they find there.

Fills the manifests in; knows nothing of what is done with them.
"""

import os
import shutil
import sys
from pathlib import Path
from string import Template

from tests.e2e.image import OPERATOR, WORKER

ROOT = Path(__file__).parents[2]
MANIFESTS = Path(__file__).parent / "manifests"
EXAMPLE = "examples/smollm2.yaml"
NOBODY = 65532
"""User and group of the pods."""
KUSTOMIZATION = f"resources: [{EXAMPLE}]\npatches: [{{path: service.yaml}}]\n"


def make(folder: Path, models: Path) -> None:
    """Fills a new folder; `models` is made if need be, and lent to the pods' user."""
    models.mkdir(parents=True, exist_ok=True)
    os.chown(models, NOBODY, NOBODY)
    (folder / "examples").mkdir(parents=True)
    shutil.copy(ROOT / EXAMPLE, folder / EXAMPLE)
    shutil.copytree(ROOT / "charts", folder / "charts")
    values = {
        "SOURCE": str(ROOT),
        "ENVIRONMENT": sys.prefix,
        "PYTHON": sys.base_prefix,
        "MODELS": str(models),
    }
    for manifest in MANIFESTS.iterdir():
        text = Template(manifest.read_text()).substitute(values)
        (folder / manifest.name).write_text(text)
    (folder / "kustomization.yaml").write_text(KUSTOMIZATION)


def images() -> dict[str, list[str]]:
    """Names and entry points of the project's images, as its Dockerfiles have them."""
    python = [f"{sys.prefix}/bin/python", "-P", "-m"]
    return {OPERATOR: [*python, "outrider.operator"], WORKER: [*python, "outrider.worker"]}


def cache() -> Path:
    """Where prepared models are kept from one run to the next."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "outrider" / "e2e"
