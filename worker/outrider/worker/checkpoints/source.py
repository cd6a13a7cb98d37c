"""Model URIs: what may be written, and which local path each one means.

Leaves reading the files to `config_file`, `gguf_file` and `load`; downloads only for `hf://`.
"""

import enum
import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from outrider.worker.checkpoints.download import download
from outrider.worker.checkpoints.fingerprint import Progress, ignore_progress
from outrider.worker.errors import ModelError

NEEDED = [
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.*",
    "vocab.*",
    "merges.txt",
]
"""Files of a Hugging Face repository that are fetched; folders inside it are not."""


class Scheme(enum.StrEnum):
    """Scheme of a model URI."""

    FILE = "file"
    HF = "hf"
    PACKAGE = "package"


def ignore_begin(folder: Path) -> None:
    """Take any model."""


_FORMS = {
    Scheme.FILE: re.compile(r"(?P<place>.+)(?P<detail>)", re.DOTALL),
    Scheme.HF: re.compile(r"(?P<place>[^/@]+/[^/@]+)(@(?P<detail>.*))?", re.DOTALL),
    Scheme.PACKAGE: re.compile(r"(?P<place>[^\W\d]\w*(\.[^\W\d]\w*)*)(/(?P<detail>(?!/).*))?"),
}
_SHAPES = (
    "file:///absolute/path, file://relative/path, hf://organisation/name[@revision], "
    "package://module/path/in/package"
)


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A parsed model URI."""

    uri: str
    scheme: Scheme
    place: str
    """The path, the repository or the module."""
    detail: str = ""
    """HF: the revision. PACKAGE: the path inside the package."""

    @classmethod
    def parse(cls, uri: str) -> Self:
        """Read a URI; raises `ModelError` that names it and the allowed forms."""
        scheme, _, rest = uri.partition("://")
        found = scheme in _FORMS and _FORMS[Scheme(scheme)].fullmatch(rest)
        if not found or ".." in Path(found["detail"] or "").parts:
            raise ModelError(f"model URI {uri!r} is not one of: {_SHAPES}")
        return cls(uri, Scheme(scheme), found["place"], found["detail"] or "")

    @property
    def name(self) -> str:
        """Name of this model: the last part of its path, without an ending."""
        if self.scheme is Scheme.HF:
            return self.place.split("/")[-1]
        last = Path(self.detail or self.place)
        return last.stem if is_gguf(last) else last.name

    def resolve(
        self,
        progress: Progress = ignore_progress,
        begin: Callable[[Path], None] = ignore_begin,
    ) -> Path:
        """Return the local folder (config.json and safetensors) or `.gguf` file; fetches `hf://`.

        `progress` is told of the bytes that come; before they do, `begin` is given a folder with
        config.json and may refuse it. Raises `ModelError` when there is none.
        """
        match self.scheme:
            case Scheme.FILE:
                path = Path(self.place).absolute()
            case Scheme.PACKAGE:
                path = _package_folder(self.uri, self.place) / self.detail
            case Scheme.HF:
                path = self._fetched(progress, begin)
        if path.is_file() and is_gguf(path):
            return path
        if not path.exists():
            raise ModelError(f"model {self.uri}: {path} does not exist")
        if not (path / "config.json").is_file():
            raise ModelError(
                f"model {self.uri}: {path} is neither a .gguf file nor a folder with config.json"
            )
        return path

    def _fetched(self, progress: Progress, begin: Callable[[Path], None]) -> Path:
        try:
            return download(self.place, self.detail or None, NEEDED, progress, begin)
        except ModelError as error:
            raise ModelError(f"model {self.uri}: {error}") from error


def is_gguf(path: Path) -> bool:
    """True for the name of a GGUF file."""
    return path.suffix.lower() == ".gguf"


def _package_folder(uri: str, module: str) -> Path:
    """Return the folder of an installed package, found without importing any of its code."""
    top, *inner = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(f"model {uri}: Python package {top!r} is not installed")
    return Path(spec.submodule_search_locations[0]).joinpath(*inner)
