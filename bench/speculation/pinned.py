"""An earlier commit's service as a side: `bench.speculation` compares this build with it.

The commit's sources are taken out of this clone's history into `~/.cache/outrider/bench`, where
the code that numba compiles for them is found again. `pinned_peer.py` runs with them alone.
"""

import contextlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from bench.record.report import Prompt
from bench.sides.peer import Peer, started
from bench.sides.services import Answer, Counts
from outrider.cli.service.arrangement import Arrangement
from outrider.client import Sampling
from outrider.contract.files import user_cache

ROOT = Path(__file__).parents[2]
PEER = Path(__file__).parent / "pinned_peer.py"
PORTIONS = ("operator", "worker", "kernels", "protos", "cli", "lab")
"""Folders of the repository that hold the namespace `outrider`."""
EXAMPLES = "examples"


@dataclass(frozen=True, slots=True)
class Pinned:
    """A service of the pinned commit."""

    name: str
    peer: Peer

    async def ask(self, prompt: Prompt, tokens: int, sampling: Sampling) -> Answer:
        """Return one answer."""
        said = await self.peer.ask(
            text=prompt.text,
            max_tokens=tokens,
            temperature=sampling.temperature,
            seed=sampling.seed,
        )
        return Answer(**said | {"token_ids": tuple(said["token_ids"])})

    async def counts(self) -> Counts | None:
        """Return None: an earlier commit may count other things."""
        return None


@contextlib.asynccontextmanager
async def pinned_service(
    tree: Path, file: Path, name: str, arrangement: Arrangement
) -> AsyncIterator[Pinned]:
    """Start the service of `file` with the sources in `tree`, in one arrangement."""
    command: list[str | Path] = [sys.executable, "-P", PEER, "--file", file]
    command += ["--threads", str(arrangement.threads)]
    if arrangement.placement is not None:
        command += ["--placement", arrangement.placement.value]
    async with started(name, command, environment(tree)) as peer:
        yield Pinned(name, peer)


def environment(tree: Path) -> dict[str, str]:
    """Return variables with which Python, and every worker that it starts, imports from `tree`."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(tree / name) for name in PORTIONS)}


def checkout(commit: str, folder: Path | None = None, root: Path = ROOT) -> Path:
    """Return a folder with the sources of a commit, made the first time.

    Raises `SystemExit` where the history of this clone does not hold the commit.
    """
    asked = _git(root, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    if asked.returncode:
        raise SystemExit(
            f"commit {commit}, with which this build is compared, is not in the history of {root}: "
            "fetch it (`git fetch --unshallow` in a shallow clone), or say --pinned none"
        )
    name = asked.stdout.decode().strip()
    parent = folder or user_cache() / "bench"
    tree = parent / name
    if not tree.is_dir():
        _extract(root, name, tree)
    return tree


def _extract(root: Path, commit: str, tree: Path) -> None:
    """Write the commit's folders, whole or not at all."""
    packed = _git(root, "archive", commit, *PORTIONS, EXAMPLES)
    packed.check_returncode()
    tree.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=tree.parent) as scratch:
        fresh = Path(scratch) / "tree"
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(fresh, filter="data")
        with contextlib.suppress(FileExistsError):  # another process was first
            os.rename(fresh, tree)


def _git(root: Path, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=False)
