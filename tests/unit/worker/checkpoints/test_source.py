"""Model URIs: their forms, what they resolve to, and what is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.worker.checkpoints.source import ModelSource, Scheme
from outrider.worker.errors import ModelError


@pytest.mark.parametrize(
    ("uri", "scheme", "place", "detail", "name"),
    [
        ("file:///models/tiny", Scheme.FILE, "/models/tiny", "", "tiny"),
        ("file://models/a.b.gguf", Scheme.FILE, "models/a.b.gguf", "", "a.b"),
        ("file://models/A.GGUF", Scheme.FILE, "models/A.GGUF", "", "A"),
        ("hf://org/Model-1.5B", Scheme.HF, "org/Model-1.5B", "", "Model-1.5B"),
        ("hf://org/name@v1.0", Scheme.HF, "org/name", "v1.0", "name"),
        ("package://a.b/c/d.gguf", Scheme.PACKAGE, "a.b", "c/d.gguf", "d"),
        ("package://module", Scheme.PACKAGE, "module", "", "module"),
    ],
)
def test_a_uri_is_read(uri: str, scheme: Scheme, place: str, detail: str, name: str) -> None:
    source = ModelSource.parse(uri)
    assert source == ModelSource(uri, scheme, place, detail)
    assert source.name == name


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "/models/tiny",
        "http://host/model",
        "file://",
        "hf://name",
        "hf://org/name/more",
        "hf://org/",
        "package://not-a-module/x",
        "package://module/../../etc/passwd",
        "package://module//etc/passwd",
    ],
)
def test_a_uri_of_another_form_is_refused_with_the_forms_that_work(uri: str) -> None:
    with pytest.raises(ModelError) as caught:
        ModelSource.parse(uri)
    assert repr(uri) in str(caught.value)
    assert all(f"{scheme}://" in str(caught.value) for scheme in Scheme)


def test_a_relative_folder_is_found_from_here(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    relative = os.path.relpath(tmp_path)
    assert ModelSource.parse(f"file://{relative}").resolve().samefile(tmp_path)
    assert ModelSource.parse(f"file://{tmp_path}").resolve() == tmp_path


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nowhere does not exist"):
        ModelSource.parse(f"file://{tmp_path}/nowhere").resolve()
    with pytest.raises(ModelError, match=r"neither a \.gguf file nor a folder with config\.json"):
        ModelSource.parse(f"file://{tmp_path}").resolve()


def test_a_file_in_a_package_is_found_without_importing_it(tmp_path: Path) -> None:
    package = tmp_path / "untouched_package" / "inner"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "model.gguf").touch()
    sys.path.insert(0, str(tmp_path))
    try:
        found = ModelSource.parse("package://untouched_package.inner/model.gguf").resolve()
    finally:
        sys.path.remove(str(tmp_path))
    assert found == package / "model.gguf"


def test_a_package_that_is_not_installed_is_named() -> None:
    with pytest.raises(ModelError, match="Python package 'no_such_package' is not installed"):
        ModelSource.parse("package://no_such_package/model.gguf").resolve()


def hub_cache(root: Path) -> Path:
    """A Hugging Face cache that holds revision v1 of org/tiny."""
    repository = root / "models--org--tiny"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps({"found": True}))
    (repository / "refs").mkdir()
    (repository / "refs" / "v1").write_text("0" * 40)
    return snapshot


@pytest.mark.parametrize(("revision", "found"), [("v1", True), ("v2", False)])
def test_the_hub_is_asked_for_one_revision(tmp_path: Path, revision: str, found: bool) -> None:
    snapshot = hub_cache(tmp_path)
    script = (
        "from outrider.worker.checkpoints.source import ModelSource\n"
        "from outrider.worker.errors import ModelError\n"
        f"try: print(ModelSource.parse('hf://org/tiny@{revision}').resolve())\n"
        "except ModelError as error: print('refused', str(error).splitlines()[0])"
    )
    environment = os.environ | {"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    expected = str(snapshot) if found else f"refused model hf://org/tiny@{revision}: "
    assert done.stdout.startswith(expected)
