"""tools.changed_tests finds the tests that an edit concerns."""

from pathlib import Path, PurePosixPath

import pytest
from tools.changed_tests import Checkout, module_name

FILES = {
    "worker/outrider/worker/kv/__init__.py": "",
    "worker/outrider/worker/kv/blocks.py": "import numpy",
    "worker/outrider/worker/engine.py": '"""engine.md"""\nfrom outrider.worker.kv import blocks',
    "worker/outrider/worker/__main__.py": "def main():\n    import outrider.worker.engine",
    "tools/pages.py": "PAGE = 'docs/reference/settings.md'",
    "tests/unit/gpu/conftest.py": "from outrider.worker.kv.blocks import Block",
    "tests/unit/gpu/test_device.py": "",
    "tests/unit/test_blocks.py": "from outrider.worker.kv.blocks import Block",
    "tests/unit/test_engine.py": "import outrider.worker.engine",
    "tests/unit/test_pages.py": "from tools import pages",
    "tests/unit/test_process.py": "COMMAND = ['python', '-m', 'outrider.worker']",
    "tests/unit/fakes.py": "from outrider.worker.kv import blocks",
    "tests/process/test_serving.py": "from outrider.worker.kv import blocks",
}
OF_BLOCKS = "gpu/test_device test_blocks test_engine test_process"


@pytest.mark.parametrize(
    ("changed", "concerned"),
    [
        ("worker/outrider/worker/kv/blocks.py", OF_BLOCKS),
        ("worker/outrider/worker/kv/__init__.py", OF_BLOCKS),
        ("worker/outrider/worker/engine.py", "test_engine test_process"),
        ("worker/outrider/worker/__main__.py", "test_process"),
        ("tests/unit/test_blocks.py", "test_blocks"),
        ("tests/unit/gpu/conftest.py", "gpu/test_device"),
        ("tests/unit/fakes.py", ""),
        ("tests/process/test_serving.py", ""),
        ("docs/reference/settings.md", "test_pages"),
        ("docs/engine.md", "test_pages"),  # a page of the same folder: more rather than fewer
        ("README.md", ""),
    ],
)
def test_what_imports_or_names_a_changed_file_is_concerned(
    tmp_path: Path, changed: str, concerned: str
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = Checkout(tmp_path, map(PurePosixPath, FILES)).concerned([PurePosixPath(changed)])
    assert [str(test.relative_to("tests/unit").with_suffix("")) for test in found] == (
        concerned.split()
    )


def test_tests_of_a_module_that_is_gone_are_concerned(tmp_path: Path) -> None:
    (tmp_path / "tests/unit").mkdir(parents=True)
    (tmp_path / "tests/unit/test_old.py").write_text("import outrider.cli.old")
    test, gone = PurePosixPath("tests/unit/test_old.py"), PurePosixPath("cli/outrider/cli/old.py")
    assert list(Checkout(tmp_path, [test, gone]).concerned([gone])) == [test]


def test_modules_are_named_as_they_are_imported() -> None:
    files = ("worker/outrider/worker/kv/pool.py", "bench/__init__.py", "operator/outrider/x.py")
    names = [module_name(PurePosixPath(file)) for file in files]
    assert names == ["outrider.worker.kv.pool", "bench", "outrider.x"]
