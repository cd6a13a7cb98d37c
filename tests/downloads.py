"""Downloads of a repository from a hub on loopback, each in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.fake_hub import Hub
from tests.tiny_models import write_tiny

SCRIPT = """
import json, resource, sys
from outrider.worker.errors import ModelError
from outrider.worker.checkpoints.source import ModelSource
def begin(folder):
    if "refuse" in sys.argv:
        raise ModelError("not served: " + ", ".join(file.name for file in folder.iterdir()))
for option in sys.argv:
    if option.startswith("most="):
        most = int(option.removeprefix("most="))
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
try:
    uri, tell = ModelSource.parse(sys.argv[1]), lambda *one: print(json.dumps(one), flush=True)
    print(json.dumps(str(uri.resolve(tell, begin))))
except ModelError as error:
    print(json.dumps(f"refused: {error}"))
"""
WEIGHTS = "model.safetensors"
CHUNK = 10 << 20
"""Bytes that the library writes at once."""
SIZE = int(2.5 * CHUNK)
Told = list[tuple[str, int, int]]


def started(
    uri: str, endpoint: str, cache: Path, *options: str, offline: str = "0"
) -> subprocess.Popen[str]:
    """A process that resolves a URI; options: `refuse` it, write files of `most=BYTES`."""
    environment = os.environ | {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(cache),
        "HF_HUB_CACHE": str(cache / "hub"),
        "HF_HUB_OFFLINE": offline,
    }
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, uri, *options],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def resolved(*arguments: Any, **options: Any) -> tuple[str, Told]:
    """What a process found in the end, and what it told before."""
    said, errors = started(*arguments, **options).communicate()
    assert "it/s" not in errors, "the library draws no bars of its own"
    assert said, errors
    *told, found = map(json.loads, said.splitlines())
    return found, [tuple(one) for one in told]


def large(folder: Path) -> Path:
    """A model whose weights come in three chunks."""
    model = write_tiny(folder)
    (model / WEIGHTS).write_bytes(np.random.default_rng(0).bytes(SIZE))
    return model


def left_in(cache: Path) -> list[str]:
    """Names of the files in the hub's cache but locks and notes."""
    files = [file for file in (cache / "hub").rglob("*") if file.is_file()]
    return sorted(file.name for file in files if "blobs" in file.parts)


def begins(hub: Hub) -> list[int]:
    """From which bytes on the weights were asked for."""
    return [begin for name, begin in hub.bodies if name == WEIGHTS]


def cut_at_a_chunk(hub: Hub, cache: Path) -> None:
    """Kill a download once its second chunk was told: the first is written by then."""
    process = started("hf://org/tiny", hub.endpoint, cache)
    for line in process.stdout or ():
        if json.loads(line)[1] >= 2 * CHUNK:
            break
    process.kill()
    process.communicate()
