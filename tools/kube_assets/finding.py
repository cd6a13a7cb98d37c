"""Where the files are: `KUBEBUILDER_ASSETS` if it holds all that is asked for, else the cache.

Only looks; leaves a folder that holds some of it to `installed`, and making what is missing to
`making`.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from tools.kube_assets.pins import SERVERS, SETS, AssetsError, cache_key

VARIABLE = "KUBEBUILDER_ASSETS"


def names(sets: Iterable[str]) -> tuple[str, ...]:
    """The files of the sets, each once; an unknown set is an `AssetsError`."""
    found: dict[str, None] = {}
    for name in sets:
        if name not in SETS:
            raise AssetsError(f"no set is called {name!r}; allowed: {', '.join(SETS)}")
        found.update(dict.fromkeys(SETS[name]))
    return tuple(found)


def missing(folder: Path, wanted: Iterable[str]) -> tuple[str, ...]:
    """Those of the wanted files that the folder does not hold in a usable form."""
    return tuple(name for name in wanted if not _usable(folder / name))


def _usable(path: Path) -> bool:
    if path.suffix == ".yaml":
        return path.is_file() and path.stat().st_size > 0
    return path.is_file() and os.access(path, os.X_OK)


def given(wanted: Iterable[str], environment: Mapping[str, str]) -> tuple[Path | None, str]:
    """The folder of `KUBEBUILDER_ASSETS`, or None and what it lacks ("" where it is not set)."""
    value = environment.get(VARIABLE)
    if not value:
        return None, ""
    lacking = missing(Path(value), wanted)
    if lacking:
        return None, f"{VARIABLE}={value} is not used: it holds no {', '.join(lacking)}"
    return Path(value), ""


def cache(environment: Mapping[str, str], home: Path, sources: Path = SERVERS) -> Path:
    """The folder for what the pins of a module make; it need not exist."""
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else home / ".cache") / "outrider" / "kube" / cache_key(sources)
