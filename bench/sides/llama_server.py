"""llama.cpp's server as a side of a benchmark, built from its source the first time.

The sources are those that llama-cpp-python brings; the server is kept in `~/.cache/outrider/bench`.
Rates are the server's own count of its passes.
"""

import contextlib
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from bench.record.report import Prompt
from bench.sides.http_server import served
from bench.sides.peer import DoesNotRun
from bench.sides.services import Answer, Service
from outrider.cli.machine.info import cpu
from outrider.cli.machine.ports import free_port
from outrider.client import Sampling
from outrider.contract import processors
from outrider.contract.files import user_cache

VERSION = "0.3.36"
"""Version of llama-cpp-python."""
TOOLS = ("cmake==4.2.1", "ninja==1.13.0", "pip==26.0")
BUILD = (
    "GGML_NATIVE=OFF",
    "LLAMA_CURL=OFF",
    "LLAMA_OPENSSL=OFF",
    "LLAMA_BUILD_TESTS=OFF",
    "LLAMA_BUILD_UI=OFF",
)
INSTRUCTIONS = {
    "avx": "AVX",
    "avx2": "AVX2",
    "f16c": "F16C",
    "fma": "FMA",
    "bmi2": "BMI2",
    "avx_vnni": "AVX_VNNI",
    "avx512f": "AVX512",
    "avx512_vbmi": "AVX512_VBMI",
    "avx512_vnni": "AVX512_VNNI",
    "avx512_bf16": "AVX512_BF16",
    "amx_tile": "AMX_TILE",
    "amx_int8": "AMX_INT8",
    "amx_bf16": "AMX_BF16",
}
"""Options of the build by the processor's flag. They are named, since a native build dies of an
illegal instruction on machines that hide some of their processor's instructions."""
TILES = "_tile_loadconfig(&tc);"
STORED_TILES = f'asm volatile("" : : "r"(&tc) : "memory"); {TILES}'
"""How llama.cpp configures AMX's tiles, and what makes it right: the header of GCC 12 tells the
compiler of 8 of the 64 bytes, the others are not stored, and the server dies."""
CONTEXT = 2048
READY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class LlamaServer:
    """A server that runs."""

    client: httpx.AsyncClient

    async def complete(self, prompt: Sequence[int], tokens: int) -> dict[str, Any]:
        """Return tokens, seconds and ids of one greedy answer to a prompt that is not cached, and
        the prompt's seconds; raises `DoesNotRun`."""
        asked = {
            "prompt": list(prompt),
            "n_predict": tokens,
            "temperature": 0.0,
            "cache_prompt": False,
            "return_tokens": True,
        }
        try:
            response = await self.client.post("/completion", json=asked)
            response.raise_for_status()
        except httpx.HTTPError as error:
            raise DoesNotRun(
                f"the server gave no answer: {error or type(error).__name__}"
            ) from None
        said = response.json()
        passes = said["timings"]
        return {
            "tokens": passes["predicted_n"] - 1,  # the prompt's pass gives the first
            "seconds": passes["predicted_ms"] / 1e3,
            "prompt_seconds": passes["prompt_ms"] / 1e3,
            "ids": said["tokens"],
        }


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """A server as a side, which gets prompts as this build has tokenized them."""

    server: LlamaServer
    service: Service
    """The service whose tokenizer and chat template are taken."""

    async def ask(self, prompt: Prompt, tokens: int, sampling: Sampling) -> Answer:
        """Return one greedy answer; passes are not known."""
        ids = await self.service.ids(prompt)
        said = await self.server.complete(ids, tokens)
        return Answer.of_peer(said["ids"], said["seconds"])

    async def counts(self) -> None:
        """Return none."""

    async def read(self, prompt: Sequence[int]) -> float:
        """Return the seconds of one prompt."""
        return float((await self.server.complete(prompt, 1))["prompt_seconds"])


@contextlib.asynccontextmanager
async def started(
    server: Path, model: Path, threads: int, *more: str | Path
) -> AsyncIterator[LlamaServer]:
    """Run a server with a model; raises `DoesNotRun` if it does not come up."""
    port = free_port()
    command = [server, "-m", model, "--port", str(port), "-c", str(CONTEXT), "-np", "1"]
    command += ["-t", str(threads), "-tb", str(threads), "--no-webui", *more]
    async with served(command, port, "/health", READY_SECONDS) as client:
        yield LlamaServer(client)


def built(uv: str) -> Path:
    """Return the server's file; builds it if it is not kept; raises `DoesNotRun`."""
    kept = user_cache() / "bench" / f"llama.cpp-{VERSION}"
    file = kept / "bin" / "llama-server"
    if file.exists():
        return file
    print(f"building llama.cpp's server in {kept}, which takes minutes", file=sys.stderr)
    tools = [part for tool in TOOLS for part in ("--with", tool)]
    run = [uv, "run", "--no-project", "--isolated", *tools]
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as name:
        folder = Path(name)
        of_source = ["--no-deps", "--no-binary", "llama-cpp-python", f"llama-cpp-python=={VERSION}"]
        _do([*run, "python", "-m", "pip", "download", "--quiet", *of_source, "-d", folder])
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        (source,) = folder.glob("*/vendor/llama.cpp")
        tiles = source / "ggml" / "src" / "ggml-cpu" / "amx" / "mmq.cpp"
        tiles.write_text(tiles.read_text().replace(TILES, STORED_TILES))
        options = [
            f"-D{option}" for option in ("CMAKE_BUILD_TYPE=Release", *BUILD, *instructions())
        ]
        _do([*run, "cmake", "--fresh", "-S", source, "-B", kept, "-G", "Ninja", *options])
        jobs = str(processors.count())
        _do([*run, "cmake", "--build", kept, "--target", "llama-server", "-j", jobs])
    return file


def instructions() -> list[str]:
    """Return an option for every instruction set that the processor shows or lacks."""
    _, flags = cpu()
    return [
        f"GGML_{name}={'ON' if flag in flags else 'OFF'}" for flag, name in INSTRUCTIONS.items()
    ]


def _do(command: Sequence[str | Path]) -> None:
    """Run a command, its output on this one's standard error; raises `DoesNotRun`."""
    done = subprocess.run([str(part) for part in command], check=False, stdout=sys.stderr)
    if done.returncode != 0:
        raise DoesNotRun(
            f"{command[0]} ended with exit status {done.returncode} while it was built"
        )
