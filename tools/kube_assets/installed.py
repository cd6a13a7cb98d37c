"""Servers that are installed already, where others are asked for too: those go beside them.

setup-envtest fills the folder of `KUBEBUILDER_ASSETS` with the set `core` and no other. That set is
used whole or not at all, and with servers of its own minor version alone: others would not be a
cluster that anyone runs. Leaves making the rest to `making`.
"""

import hashlib
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from tools.kube_assets import finding
from tools.kube_assets.pins import SETS, version_of

API_SERVER = "kube-apiserver"


def usable(wanted: Iterable[str], environment: Mapping[str, str]) -> tuple[Path | None, str]:
    """The folder of `KUBEBUILDER_ASSETS` if its set `core` can be used; None and why not, or "" if
    there is no such set."""
    value = environment.get(finding.VARIABLE)
    if not value or not set(SETS["core"]) <= set(wanted):
        return None, ""
    if finding.missing(Path(value), SETS["core"]):
        return None, ""
    found, pinned = _version(Path(value) / API_SERVER), version_of("k8s.io/kubernetes")
    if found.startswith(pinned.rpartition(".")[0] + "."):
        return Path(value), ""
    return None, f"{finding.VARIABLE}={value} is not used: it holds {found}, and not {pinned}"


def _version(server: Path) -> str:
    """`v1.34.4`; why it says none where it cannot be run."""
    try:
        said = subprocess.run([server, "--version"], capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return said.stdout.strip().removeprefix("Kubernetes ")


def beside(given: Path, made: Path, wanted: Iterable[str]) -> Path:
    """A folder of links to the set `core` of one folder, and to the rest in the other."""
    name = hashlib.sha256(str(given).encode()).hexdigest()[:16]
    files = {file: given if file in SETS["core"] else made for file in wanted}
    return linked(made / f"beside-{name}", files)


def linked(into: Path, files: Mapping[str, Path]) -> Path:
    """A folder of links to files, each in the folder that is given for it."""
    into.mkdir(parents=True, exist_ok=True)
    for file, source in files.items():
        if not (into / file).exists():
            new = into / f".{file}"
            new.unlink(missing_ok=True)
            new.symlink_to((source / file).absolute())
            new.replace(into / file)
    return into
