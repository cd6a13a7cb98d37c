"""The commands of the page on two GPUs for ranks, in Triton's interpreter, with gloo for NCCL.

Models are tiny and answers short; commands that need memory which GPUs map are left out, and so are
those that serve.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from outrider.kernels.jit import compiled
from tests.process.service_run import OUTRIDER
from tests.readme import commands
from tests.tiny_models import write_tiny

pytest.importorskip("triton")
pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "run-on-two-gpus.md"
LEFT_OUT = re.compile(r"one-shot|fused|^kill|^outrider generate|^outrider run -f \S+$")
SECONDS = 240.0


def blocks(heading: str) -> list[str]:
    """Code blocks of a section of the page."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S)
    return re.findall(r"^```\w*\n(.*?)^```$", section, re.M | re.S)


@pytest.fixture
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = {"vocab": 300, "hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 32}
    return write_tiny(tmp_path_factory.mktemp("two"), layers=2, **shape)


def test_a_model_on_both_writes_the_text_of_one(model: Path, tmp_path: Path) -> None:
    written, *shells = blocks("One model on both")
    script = re.search(r"^# same.py\n.*?(?=^```$)", PAGE.read_text(), re.M | re.S)
    assert script
    for text in (script[0], written):
        text = re.sub(r"hf://[^\"]+", f"file://{model}", text.replace("2048", "64"))
        (tmp_path / text.split()[1]).write_text(text)
    outrider = tmp_path / "outrider"
    outrider.write_text(f"#!/bin/sh\nexec {OUTRIDER[0]} -P -c '{OUTRIDER[3]}' \"$@\"\n")
    outrider.chmod(0o755)
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "TRITON_INTERPRET": "1",
        "NUMBA_CACHE_DIR": str(compiled.folder().parent),
        "OMP_NUM_THREADS": "1",
    }
    said = ""
    for command in (one for shell in shells for one in commands(shell)):
        if LEFT_OUT.search(command):
            continue
        short = command.replace("tokens 64", "tokens 6").replace("--json", "--json --raw")
        done = subprocess.run(
            ["bash", "-c", short],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=SECONDS,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stderr}"
        said = done.stdout
    assert said == "same text\n"
