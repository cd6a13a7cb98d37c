"""The folder in which the run's commands are given, and what they find there.

Fills the manifests in; knows nothing of what is done with them.
"""

import os
import shutil
from pathlib import Path
from string import Template

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
    for manifest in MANIFESTS.iterdir():
        text = Template(manifest.read_text()).substitute(MODELS=str(models))
        (folder / manifest.name).write_text(text)
    (folder / "kustomization.yaml").write_text(KUSTOMIZATION)


def cache() -> Path:
    """Where prepared models are kept from one run to the next."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "outrider" / "e2e"
