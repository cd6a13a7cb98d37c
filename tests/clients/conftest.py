"""One server of the scripted model for all clients, and the clients, each installed by itself."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bench.sides.peer import uv
from tests.chain_models import write_chain
from tests.clients.scripted import INSTEAD, SAYS, TEMPLATE
from tests.process.service_run import serving_command

HERE = Path(__file__).parent
CONTEXT = 16384


@pytest.fixture(scope="session")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Where clients find `outrider serve` with the scripted model, as variables of scripts."""
    model = tmp_path_factory.mktemp("scripted")
    write_chain(model, SAYS, TEMPLATE, instead=INSTEAD, max_position_embeddings=CONTEXT)
    ends = json.loads((model / "generation_config.json").read_text())
    (model / "generation_config.json").write_text(json.dumps({**ends, "do_sample": False}))
    home = tmp_path_factory.mktemp("home")
    with serving_command(home, "serve", str(model), "--context", str(CONTEXT)) as run:
        url = run.found(r"(http://\S+/v1)")
        served = {"BASE_URL": url, "MODEL": run.found(r"Serving (\S+)\."), "FOLDER": str(model)}
        yield {**served, "GRPC": run.address}


@pytest.fixture(scope="session")
def node_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the clients for Node are installed, with their scripts."""
    folder = tmp_path_factory.mktemp("node")
    shutil.copytree(HERE / "node", folder, dirs_exist_ok=True)
    subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=folder, check=True)
    return folder


def python(script: str, there: Mapping[str, str]) -> dict[str, Any]:
    """What a client for Python got, by case; uv installs what the script's header names."""
    path = HERE / "scripts" / f"{script}.py"
    return got([uv(), "run", "--no-project", "--script", str(path)], there)


def got(command: list[str], there: Mapping[str, str]) -> dict[str, Any]:
    """What a script printed, by case."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, env={**clean, **there}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        found |= json.loads(line)
    return found
