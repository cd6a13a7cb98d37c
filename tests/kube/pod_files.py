"""What a kubelet does for a container before it starts: its ConfigMaps as files, its arguments,
its variables.

Only as far as a worker needs it. Knows nothing of the worker.
"""

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from outrider.operator.naming import CONTAINER

Object = Mapping[str, Any]
ReadConfigMap = Callable[[str], Mapping[str, str] | None]
"""The data of a ConfigMap or Secret of the pod's namespace, by name, as text; None: there is
none."""


class NotYet(Exception):
    """Something that the pod mounts is not there; a kubelet would try again."""


def container_of(pod: Object, name: str) -> Object:
    """The container that runs a worker: the one of this name, or the only one."""
    containers = pod["spec"]["containers"]
    return next((c for c in containers if c["name"] == name), containers[0])


def mount(
    pod: Object,
    root: Path,
    read: ReadConfigMap,
    name: str = CONTAINER,
    read_secret: ReadConfigMap = lambda name: None,
) -> None:
    """Writes a container's volumes of ConfigMaps and Secrets below `root`; raises `NotYet`."""
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", ())}
    for mounted in container_of(pod, name).get("volumeMounts", ()):
        volume, folder = volumes[mounted["name"]], below(root, mounted["mountPath"])
        if (source := volume.get("configMap")) is not None:
            _write(folder, source, read(source["name"]), source["name"])
        if (source := volume.get("secret")) is not None:
            _write(folder, source, read_secret(source["secretName"]), source["secretName"])


def _write(folder: Path, source: Object, data: Mapping[str, str] | None, name: str) -> None:
    if data is None and not source.get("optional"):
        raise NotYet(f"{name} is not there")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for key, path in _items(source, data or {}):
        (folder / path).write_text((data or {})[key])


def _items(source: Object, data: Mapping[str, str]) -> list[tuple[str, str]]:
    items = source.get("items")
    if items is None:
        return [(key, key) for key in data]
    return [(item["key"], item["path"]) for item in items if item["key"] in data]


def arguments(pod: Object, root: Path, name: str = CONTAINER) -> list[str]:
    """A container's arguments, with paths of its mounts as they are below `root`."""
    container = container_of(pod, name)
    mounts = [mounted["mountPath"] for mounted in container.get("volumeMounts", ())]
    return [_local(word, mounts, root) for word in container.get("args", ())]


def environment(pod: Object, name: str = CONTAINER) -> dict[str, str]:
    """A container's own variables: values, with those before them filled in, and labels."""
    known: dict[str, str] = {}
    for one in container_of(pod, name).get("env", ()):
        known[one["name"]] = _filled(one["value"], known) if "value" in one else _field(pod, one)
    return known


def _filled(text: str, known: Mapping[str, str]) -> str:
    for name, value in known.items():
        text = text.replace(f"$({name})", value)
    return text


def _field(pod: Object, variable: Object) -> str:
    """The label that a variable names; empty for anything else."""
    path = variable["valueFrom"].get("fieldRef", {}).get("fieldPath", "")
    label = re.fullmatch(r"metadata\.labels\['(.*)'\]", path)
    return "" if label is None else str(pod["metadata"]["labels"].get(label[1], ""))


def _local(word: str, mounts: list[str], root: Path) -> str:
    inside = any(PurePosixPath(word).is_relative_to(path) for path in mounts)
    return str(below(root, word)) if inside else word


def below(root: Path, path: str) -> Path:
    """A path of the container, as it is outside."""
    return root / path.lstrip("/")
