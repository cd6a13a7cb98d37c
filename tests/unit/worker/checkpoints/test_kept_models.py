"""Models that are kept: what was prepared and downloaded, as `models` of the worker says it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outrider.contract.settings import ModelSettings, Role, WorkerSettings
from outrider.worker.checkpoints.fingerprint import ignore_progress
from outrider.worker.checkpoints.kept_models import (
    kept_models,
    note_ends,
    note_pull,
    note_source,
)
from outrider.worker.checkpoints.prepare import prepare
from tests.fake_hub import hub_of
from tests.tiny_gguf import write_tiny_gguf
from tests.tiny_models import write_tiny


def asked(cache: Path, hub: Path, *removed: str) -> tuple[int, dict[str, Any]]:
    """What the command says, and its exit status."""
    options = [f"--remove={one}" for one in removed]
    done = subprocess.run(
        [sys.executable, "-m", "outrider.worker", "models", "--cache", str(cache), *options],
        env=os.environ | {"HF_HUB_CACHE": str(hub)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def downloaded(hub: Path, repository: str, size: int, ref: str = "main", commit: str = "0") -> Path:
    """A revision of a repository in Hugging Face's cache, as its client leaves it; copies of a
    repository have the same commits."""
    folder, commit = hub / f"models--{repository.replace('/', '--')}", commit * 40
    snapshot = folder / "snapshots" / commit
    for one in (snapshot, folder / "blobs", folder / "refs"):
        one.mkdir(parents=True, exist_ok=True)
    (folder / "blobs" / commit).write_bytes(bytes(size))
    (snapshot / "model.safetensors").symlink_to(f"../../blobs/{commit}")
    (folder / "refs" / ref).write_text(commit)
    return folder


def folder_of(cache: Path, name: str, uri: str, size: int) -> Path:
    folder = cache / "models" / name.ljust(32, "0")
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(bytes(size))
    if uri:
        note_source(folder, uri)
    return folder


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A cache with three models, of which one was downloaded and one has no note, and
    that of Hugging Face with another program's model beside."""
    cache, hub = tmp_path / "cache", tmp_path / "hub"
    folder_of(cache, "aaaa1", "hf://org/tiny@v1", 100)
    folder_of(cache, "aaaa2", "file:///models/own", 200)
    folder_of(cache, "bbbb", "", 300)
    downloaded(hub, "org/tiny", 5000, "v1")
    downloaded(hub, "org/other", 7000)
    return cache, hub


def test_a_prepared_model_is_listed_with_its_uri(tmp_path: Path) -> None:
    uri = f"file://{write_tiny(tmp_path / 'tiny')}"
    made = prepare(ModelSettings(uri=uri), tmp_path / "cache", ignore_progress)
    (kept,) = kept_models(tmp_path / "cache")
    assert (kept.uris, made.cache.name.startswith(kept.id)) == ((uri,), True)
    assert kept.prepared_bytes == sum(
        file.stat().st_size for file in made.cache.rglob("*") if file.is_file()
    )


def test_a_gguf_file_itself_is_no_part_of_what_is_kept_of_it(tmp_path: Path) -> None:
    path = write_tiny_gguf(write_tiny(tmp_path / "tiny", hidden=256), tmp_path / "tiny.gguf")
    prepare(ModelSettings(uri=f"file://{path}"), tmp_path / "cache", ignore_progress)
    (kept,) = kept_models(tmp_path / "cache")
    assert kept.prepared_bytes < path.stat().st_size / 4


def test_a_note_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    note_source(tmp_path, "file:///a")
    before = (tmp_path / "source.json").stat()
    note_source(tmp_path, "file:///a")
    after = (tmp_path / "source.json").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    note_source(tmp_path, "file:///b")
    note_source(tmp_path, "file:///a")
    assert json.loads((tmp_path / "source.json").read_text()) == {
        "uris": ["file:///a", "file:///b"]
    }


@pytest.mark.parametrize("wanted", ["hf://org/tiny@v1", "tiny", "file:///models/copy", "copy"])
def test_a_model_of_two_names_is_listed_and_removed_by_either(
    places: tuple[Path, Path], wanted: str
) -> None:
    cache, hub = places
    note_source(cache / "models" / "aaaa1".ljust(32, "0"), "file:///models/copy")
    names = ["hf://org/tiny@v1", "file:///models/copy"]
    assert asked(cache, hub)[1]["models"][-1]["uris"] == names
    status, found = asked(cache, hub, wanted)
    assert (status, [one["uris"] for one in found["models"]]) == (0, [names])
    assert found["models"][0]["download_bytes"] == 5000
    assert sorted(folder.name[:5] for folder in (cache / "models").iterdir()) == ["aaaa2", "bbbb0"]


def test_sizes_are_those_of_both_caches(places: tuple[Path, Path]) -> None:
    status, found = asked(*places)
    assert status == 0
    notes = {
        uri: len(json.dumps({"uris": [uri]})) for uri in ("hf://org/tiny@v1", "file:///models/own")
    }
    assert [(m["uris"], m["prepared_bytes"], m["download_bytes"]) for m in found["models"]] == [
        ([], 300, 0),
        (["file:///models/own"], 200 + notes["file:///models/own"], 0),
        (["hf://org/tiny@v1"], 100 + notes["hf://org/tiny@v1"], 5000),
    ]


def test_nothing_is_kept_where_nothing_was_prepared(tmp_path: Path) -> None:
    assert asked(tmp_path / "cache", tmp_path / "hub") == (0, {"models": []})


@pytest.mark.parametrize("wanted", ["hf://org/tiny@v1", "tiny", "aaaa1"])
def test_a_model_is_removed_with_its_download_and_nothing_else(
    places: tuple[Path, Path], wanted: str
) -> None:
    cache, hub = places
    status, found = asked(cache, hub, wanted)
    assert (status, [one["uris"] for one in found["models"]]) == (0, [["hf://org/tiny@v1"]])
    assert sorted(folder.name[:5] for folder in (cache / "models").iterdir()) == ["aaaa2", "bbbb0"]
    assert [folder.name for folder in hub.glob("models--*")] == ["models--org--other"]


def test_a_model_without_a_note_is_removed_by_its_id(places: tuple[Path, Path]) -> None:
    assert asked(*places, "bbbb")[0] == 0
    assert len(list((places[0] / "models").iterdir())) == 2


@pytest.mark.parametrize("wanted", ["org", "", "../hub", "zzzz"])
def test_what_names_no_model_removes_none(places: tuple[Path, Path], wanted: str) -> None:
    status, found = asked(*places, wanted)
    assert status == 1
    first, *allowed = found["error"].splitlines()
    assert first == f"model {wanted!r} is not kept here; allowed:"
    assert {"  hf://org/tiny@v1", "  file:///models/own"} <= set(allowed)
    assert len(list((places[0] / "models").iterdir())) == 3


def test_the_nearest_name_is_said_first(places: tuple[Path, Path]) -> None:
    for wanted, nearest in (("org/tny", "hf://org/tiny@v1"), ("model/own", "file:///models/own")):
        _, found = asked(*places, wanted)
        assert found["error"].splitlines()[1] == f"  {nearest}"


def test_a_name_of_two_organisations_removes_none(places: tuple[Path, Path]) -> None:
    folder_of(places[0], "cccc", "hf://other/tiny", 400)
    status, found = asked(*places, "tiny")
    words = "model 'tiny' may be any of: hf://org/tiny@v1, hf://other/tiny; name one"
    assert (status, found) == (1, {"error": words})
    status, found = asked(*places, "aaaa")
    words = "model 'aaaa' may be any of: aaaa10000000, aaaa20000000; name one"
    assert (status, found) == (1, {"error": words})
    assert len(list((places[0] / "models").iterdir())) == 4


def test_nothing_is_removed_where_one_of_several_is_not_kept(places: tuple[Path, Path]) -> None:
    assert asked(*places, "bbbb", "nothing")[0] == 1
    assert len(list((places[0] / "models").iterdir())) == 3
    status, found = asked(*places, "bbbb", "aaaa2", "own")
    assert (status, [one["id"][:5] for one in found["models"]]) == (0, ["bbbb0", "aaaa2"])


def test_only_the_revision_that_was_named_is_deleted(tmp_path: Path) -> None:
    cache, hub = tmp_path / "cache", tmp_path / "hub"
    folder_of(cache, "aaaa", "hf://org/tiny", 100)
    folder_of(cache, "bbbb", "hf://org/tiny@v2", 100)
    folder_of(cache, "cccc", f"hf://org/tiny@{'3' * 40}", 100)
    folder = downloaded(hub, "org/tiny", 1000, "main", "1")
    downloaded(hub, "org/tiny", 2000, "v2", "2")
    downloaded(hub, "org/tiny", 3000, "v3", "3")
    status, found = asked(cache, hub, "hf://org/tiny", f"hf://org/tiny@{'3' * 40}")
    assert (status, [one["download_bytes"] for one in found["models"]]) == (0, [1000, 3000])
    assert [one.name for one in (folder / "snapshots").iterdir()] == ["2" * 40]
    assert [one.name for one in (folder / "refs").iterdir()] == ["v2"]
    assert [one.name for one in (folder / "blobs").iterdir()] == ["2" * 40]


def test_a_revision_that_another_model_was_made_of_stays(tmp_path: Path) -> None:
    cache, hub = tmp_path / "cache", tmp_path / "hub"
    folder_of(cache, "aaaa", "hf://org/tiny", 100)
    folder_of(cache, "bbbb", "hf://org/tiny@v1", 100)
    folder = downloaded(hub, "org/tiny", 1000, "main", "1")
    (folder / "refs" / "v1").write_text("1" * 40)
    status, found = asked(cache, hub, "hf://org/tiny")
    assert (status, [one["download_bytes"] for one in found["models"]]) == (0, [0])
    assert [one.name for one in (folder / "snapshots").iterdir()] == ["1" * 40]
    asked(cache, hub, "tiny")
    assert not folder.exists()


def test_a_note_of_an_unknown_form_hides_no_other_model(places: tuple[Path, Path]) -> None:
    folder_of(places[0], "cccc", "oci://registry/model", 400)
    status, found = asked(*places)
    assert (status, "oci://registry/model" in found["models"][-1]["uris"]) == (0, True)
    assert asked(*places, "oci://registry/model")[0] == 0
    assert len(list((places[0] / "models").iterdir())) == 3


def test_a_file_where_downloads_would_be_is_no_download(places: tuple[Path, Path]) -> None:
    file = places[0] / "file"
    file.touch()
    status, found = asked(places[0], file)
    assert (status, [one["download_bytes"] for one in found["models"]]) == (0, [0, 0, 0])


def test_a_link_to_nowhere_is_left_out(places: tuple[Path, Path]) -> None:
    (places[0] / "models" / "bbbb".ljust(32, "0") / "link").symlink_to("nowhere")
    status, found = asked(*places)
    assert (status, found["models"][0]["prepared_bytes"]) == (0, 300)


def test_a_tokenizer_is_asked_once_for_the_names_of_ends(tmp_path: Path) -> None:
    folder, asked = folder_of(tmp_path, "aaaa1", "file:///a", 1), []

    def name() -> Callable[[int], str]:
        asked.append(1)
        return "<{}>".format

    for ids in ((7,), (7,), (7, 9)):
        note_ends(folder, ids, name)
    (kept,) = kept_models(tmp_path)
    assert kept.end_tokens == ("<7>", "<9>")
    assert len(asked) == 2


def test_a_cut_download_is_listed_and_removed_with_its_part(tmp_path: Path) -> None:
    cache, hub = tmp_path / "cache", tmp_path / "hub"
    note_pull(cache, "hf://org/tiny")
    folder = downloaded(hub, "org/tiny", 1000)
    (folder / "blobs" / "aa.incomplete").write_bytes(bytes(500))
    (one,) = asked(cache, hub)[1]["models"]
    assert (one["uris"], one["is_whole"], one["download_bytes"]) == (["hf://org/tiny"], False, 1500)
    assert asked(cache, hub, "tiny")[1]["models"] == [one]
    assert not folder.exists()
    assert asked(cache, hub) == (0, {"models": []})


def test_a_cut_download_leaves_the_revision_of_another_model(tmp_path: Path) -> None:
    cache, hub = tmp_path / "cache", tmp_path / "hub"
    folder_of(cache, "aaaa", "hf://org/tiny@v1", 100)
    note_pull(cache, "hf://org/tiny")
    downloaded(hub, "org/tiny", 1000, "v1", "1")
    folder = downloaded(hub, "org/tiny", 2000, "main", "2")
    (folder / "blobs" / "aa.incomplete").write_bytes(bytes(500))
    asked(cache, hub, "hf://org/tiny")
    assert [one.name for one in (folder / "snapshots").iterdir()] == ["1" * 40]
    assert [one.name for one in (folder / "blobs").iterdir()] == ["1" * 40]
    assert [one["is_whole"] for one in asked(cache, hub)[1]["models"]] == [True]


def test_a_download_is_noted_until_its_model_is_prepared(tmp_path: Path) -> None:
    cache, hub = tmp_path / "cache", tmp_path / "hub"
    model = ModelSettings(uri="hf://org/tiny")
    file = tmp_path / "settings.json"
    settings = WorkerSettings(role=Role.TARGET, name="pull", model=model, cache=str(cache))
    file.write_text(settings.to_json())

    def prepared(endpoint: str) -> int:
        return subprocess.run(
            [sys.executable, "-m", "outrider.worker", "prepare", "--settings", str(file)],
            env=os.environ
            | {"HF_ENDPOINT": endpoint, "HF_HUB_CACHE": str(hub), "HF_HUB_OFFLINE": "0"},
            check=False,
        ).returncode

    def kept() -> list[tuple[list[str], bool]]:
        return [(one["uris"], one["is_whole"]) for one in asked(cache, hub)[1]["models"]]

    with hub_of(write_tiny(tmp_path / "tiny"), "org/tiny", broken={"tokenizer.json"}) as served:
        assert prepared(served.endpoint) == 1
        assert kept() == [(["hf://org/tiny"], False)]
        served.broken.clear()
        assert prepared(served.endpoint) == 0
    assert kept() == [(["hf://org/tiny"], True)]


def test_default_sampling_is_that_of_the_model_s_own_file(tmp_path: Path) -> None:
    cache, hub = tmp_path / "cache", tmp_path / "hub"
    sampling = json.dumps({"temperature": 0.5})
    own = folder_of(cache, "aaaa", "file:///models/a.gguf", 1) / "checkpoint"
    folder_of(cache, "bbbb", "hf://org/tiny", 1)
    downloaded(hub, "org/tiny", 1000)
    (fetched,) = hub.glob("*/snapshots/*")
    local, broken, gone = tmp_path / "local", tmp_path / "broken", tmp_path / "gone"
    for name, place in (("cccc", local), ("dddd", broken), ("eeee", gone)):
        folder_of(cache, name, f"file://{place}", 1)
    for place in (own, fetched, local, broken):
        place.mkdir(exist_ok=True)
        (place / "config.json").touch()
        (place / "generation_config.json").write_text("{" if place == broken else sampling)
    _, found = asked(cache, hub)
    shown = {one["id"][:4]: one["default_sampling"] for one in found["models"]}
    known = {"temperature": 0.5}
    assert shown == {"aaaa": known, "bbbb": known, "cccc": known, "dddd": {}, "eeee": {}}
