"""What the stand-in for a kubelet gives a container: files of ConfigMaps, and its arguments."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.kube.pod_files import NotYet, arguments, below, mount

MAPS = {"settings": {"a.json": "{}", "b.json": "[]"}}


def read(name: str) -> Mapping[str, str] | None:
    return MAPS.get(name)


def pod(source: Mapping[str, Any], *words: str) -> Mapping[str, Any]:
    """One whose worker mounts a ConfigMap at /etc/it, beside a container that comes first."""
    worker = {
        "name": "main",
        "args": list(words),
        "volumeMounts": [{"name": "it", "mountPath": "/etc/it"}],
    }
    volumes = [{"name": "it", "configMap": source}, {"name": "cache", "emptyDir": {}}]
    return {"spec": {"containers": [{"name": "proxy"}, worker], "volumes": volumes}}


def test_every_key_of_a_config_map_is_a_file(tmp_path: Path) -> None:
    mount(pod({"name": "settings"}), tmp_path, read)
    folder = below(tmp_path, "/etc/it")
    assert {file.name: file.read_text() for file in folder.iterdir()} == MAPS["settings"]


def test_chosen_keys_get_the_names_that_the_pod_gives_them(tmp_path: Path) -> None:
    items = [{"key": "a.json", "path": "one"}, {"key": "none", "path": "two"}]
    mount(pod({"name": "settings", "items": items}), tmp_path, read)
    assert [file.name for file in below(tmp_path, "/etc/it").iterdir()] == ["one"]


def test_a_config_map_that_is_not_there_is_waited_for_unless_it_is_optional(tmp_path: Path) -> None:
    with pytest.raises(NotYet, match="missing"):
        mount(pod({"name": "missing"}), tmp_path, read)
    mount(pod({"name": "missing", "optional": True}), tmp_path, read)
    assert list(below(tmp_path, "/etc/it").iterdir()) == []


def test_arguments_name_the_files_where_they_are(tmp_path: Path) -> None:
    given = arguments(pod({"name": "settings"}, "serve", "/etc/it/a.json", "/etc/item"), tmp_path)
    assert given == ["serve", f"{tmp_path}/etc/it/a.json", "/etc/item"]
