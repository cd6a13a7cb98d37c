"""Installs without torch: one rank on a CPU answers, and what needs torch says so in one line."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from outrider.contract.settings import LinkTransport, Role
from outrider.contract.version import missing_extra
from outrider.kernels.jit import compiled
from outrider.worker.host.torch_extra import MISSING
from tests import bytecode
from tests.process.service_run import OUTRIDER
from tests.process.workers import PROMPT, settings_for
from tests.tiny_gguf import write_tiny_gguf
from tests.tiny_models import write_draft_of, write_tiny

ROOT = Path(__file__).parents[2]
TORCHLESS = ROOT / "tests" / "torchless"
SERVICE = """
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeService
metadata: {name: tiny}
spec:
  target:
    model: {uri: "file://%s"}
    engine: {dtype: fp32, threads: 1, maxRunning: 1, maxContext: 256}
    parallelism: {tensor: %d}
"""
DRAFT = """\
  draft:
    model: {uri: "file://%s"}
    engine: {dtype: fp32}
    placement: %s
"""
ASK = ("--prompt", PROMPT, "--max-tokens", "12", "--raw", "--json")
FINDS = "import importlib.util as u; print(*map(u.find_spec, ('torch', 'triton')))"
PAGE = "from outrider.worker.api.http.app import FILES; print(*(f.name for f in FILES.iterdir()))"
GPU_FIELDS = ("input_buffers.PassFields", "chained_passes.TreeFields")
COLD_SECONDS = 900.0
"""Far more than a new environment's minute of compiling takes on a busy machine."""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="`outrider run` needs Linux here")


@dataclass(frozen=True, slots=True)
class Install:
    """Python with Outrider and without torch."""

    outrider: tuple[str, ...]
    """The command."""
    environment: Mapping[str, str]

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Run anything to its end."""
        return subprocess.run(
            command,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=COLD_SECONDS,
            check=False,
        )

    def answer(self, service: Path) -> dict[str, Any]:
        """Start a service, ask it, end it."""
        done = self.run(*self.outrider, "run", "-f", str(service), *ASK)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture
def torchless(tmp_path: Path) -> Install:
    """This install, in which processes find neither torch nor triton."""
    path = os.pathsep.join(filter(None, (str(TORCHLESS), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {
        "HOME": str(tmp_path),
        "NUMBA_CACHE_DIR": str(compiled.folder().parent),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": path,
    }
    return Install(OUTRIDER, environment)


def write_service(folder: Path, placement: str = "", ranks: int = 1) -> Path:
    """A target in a GGUF file, whose tokenizer has to be converted; a placement: with a draft."""
    checkpoint = write_tiny(folder / "checkpoint")
    text = SERVICE % (write_tiny_gguf(checkpoint, folder / "target.gguf"), ranks)
    if placement:
        draft = write_draft_of(checkpoint, folder / "draft", layers=1)
        text += DRAFT % (write_tiny_gguf(draft, folder / "draft.gguf"), placement)
    file = folder / "service.yaml"
    file.write_text(text)
    return file


@pytest.mark.timeout(2 * COLD_SECONDS)
@pytest.mark.parametrize("placement", ["Colocated", "Separate"])
def test_one_rank_on_a_cpu_answers_without_torch(
    torchless: Install, tmp_path: Path, placement: str
) -> None:
    assert torchless.run(sys.executable, "-P", "-c", FINDS).stdout == "None None\n"
    assert torchless.answer(write_service(tmp_path, placement))["tokens"] > 0


def test_code_that_a_gpu_worker_compiled_is_read_without_torch(
    torchless: Install, tmp_path: Path
) -> None:
    kept = {**torchless.environment, "NUMBA_CACHE_DIR": str(tmp_path)}
    with_torch = Install(OUTRIDER, {**kept, "PYTHONPATH": "", "TRITON_INTERPRET": "1"})
    for install, imports, fields in (
        (with_torch, "from outrider.worker.gpu import chained_passes, input_buffers", GPU_FIELDS),
        (Install(OUTRIDER, kept), "from outrider.worker.tree import growth", ("growth.Growth",)),
    ):
        code = "import numpy; from outrider.kernels.jit.handle import handle\n" + imports
        for name in fields:
            code += f"\nhandle({name}(*[numpy.zeros(1)] * len({name}._fields)))"
        done = install.run(sys.executable, "-P", "-c", code)
        assert done.returncode == 0, done.stderr


def test_several_ranks_without_torch_are_refused_before_anything_is_prepared(
    torchless: Install, tmp_path: Path
) -> None:
    file = write_service(tmp_path, ranks=2)
    refused = torchless.run(*OUTRIDER, "run", "-f", str(file), *ASK)
    assert refused.returncode != 0
    words = f"settings.tensor_parallel: 2 ranks add up by torch.distributed, and {MISSING}"
    assert words in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not list((tmp_path / ".cache").rglob("checkpoint"))


def test_a_worker_whose_link_needs_torch_says_what_to_install(
    torchless: Install, tmp_path: Path
) -> None:
    settings = settings_for(
        Role.DRAFT, tmp_path / "nowhere", tmp_path, link=LinkTransport.DISTRIBUTED
    )
    file = tmp_path / "settings.json"
    file.write_text(settings.to_json())
    worker = (sys.executable, "-P", "-m", "outrider.worker")
    refused = torchless.run(*worker, "serve", "--settings", str(file))
    words = f"settings.link: distributed goes through torch.distributed, and {MISSING}"
    assert (refused.returncode, refused.stderr) == (2, f"outrider worker: {words}\n")


def test_a_worker_whose_packages_are_missing_says_what_to_install(
    torchless: Install, tmp_path: Path
) -> None:
    install = Install(OUTRIDER, {**torchless.environment, "ABSENT": "numpy safetensors"})
    refused = install.run(*OUTRIDER, "run", "-f", str(write_service(tmp_path)), *ASK)
    assert refused.returncode != 0
    assert missing_extra("worker") in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_gpu_without_torch_is_refused_by_the_name_of_the_extra(
    torchless: Install, tmp_path: Path
) -> None:
    driver = tmp_path / "nvidiactl"
    driver.touch()
    code = (
        "from pathlib import Path; from outrider.contract.settings import Device; "
        "from outrider.worker.errors import ModelError; "
        "from outrider.worker.host.device import torch_device\n"
        f"try: torch_device(Device.GPU, Path({str(driver)!r}))\n"
        "except ModelError as error: print(error)"
    )
    install = Install(OUTRIDER, {**torchless.environment, "TRITON_INTERPRET": "0"})
    assert (
        f"is not allowed here, {MISSING}; allowed: auto, cpu"
        in install.run(sys.executable, "-P", "-c", code).stdout
    )


@pytest.fixture
def from_wheel(tmp_path: Path) -> Install:
    """A clean virtual environment with the wheel of this checkout, and what the lock pins."""
    bare = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    uv = subprocess.run([ROOT / "tools" / "bootstrap"], capture_output=True, text=True, check=True)

    def install(*arguments: str, where: Path = tmp_path) -> None:
        """By uv's cache alone, where it holds everything: the network may fail."""
        for network in (("--offline",), ()):
            done = subprocess.run(
                [uv.stdout.strip(), *network, *arguments],
                cwd=where,
                env=bare,
                capture_output=True,
                text=True,
                timeout=COLD_SECONDS,
                check=False,
            )
            if done.returncode == 0:
                return
        raise AssertionError(done.stderr)

    pins, venv = tmp_path / "pins.txt", tmp_path / "venv"
    extras = ("--no-default-groups", "--extra", "cli", "--extra", "worker")
    plain = ("--no-emit-project", "--no-hashes", "--quiet")
    install("export", "--frozen", *extras, *plain, "-o", str(pins), where=ROOT)
    install("build", "--wheel", "--out-dir", str(tmp_path / "dist"), where=ROOT)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    install("venv", "--python", sys.executable, str(venv))
    python = ("--python", str(venv / "bin" / "python"))
    install("pip", "install", *python, "-c", str(pins), f"outrider[cli,worker] @ {wheel.as_uri()}")
    own = {
        "HOME": str(tmp_path),
        bytecode.FOLDER: str(tmp_path / "bytecode"),
        "NUMBA_CACHE_DIR": str(compiled.folder().parent),  # by sources, which the wheel has too
    }
    return Install((str(venv / "bin" / "outrider"),), bare | own)


@pytest.mark.slow
@pytest.mark.timeout(2 * COLD_SECONDS)
def test_the_wheel_answers_in_a_clean_environment(from_wheel: Install, tmp_path: Path) -> None:
    python = str(Path(from_wheel.outrider[0]).with_name("python"))
    assert "index.html" in from_wheel.run(python, "-P", "-c", PAGE).stdout.split()
    lists = "import importlib.metadata as m; print(*(d.name for d in m.distributions()))"
    held = from_wheel.run(python, "-P", "-c", lists).stdout.lower().split()
    assert "outrider" in held
    assert [name for name in held if name in ("torch", "triton") or name.startswith("nvidia")] == []
    assert from_wheel.answer(write_service(tmp_path))["tokens"] > 0
