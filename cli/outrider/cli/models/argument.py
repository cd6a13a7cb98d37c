"""Models as a command line names them, and the URIs of the YAML that they stand for.

Leaves fetching and reading them to the worker.
"""

import json
import os
import re
from pathlib import Path

from outrider.cli.failures import BadInput

LOCAL, HUB, PACKAGE = "file://", "hf://", "package://"
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[^@\s]+)?")
ALLOWED = (
    "a folder with config.json, a .gguf file, ORGANISATION/NAME[@REVISION] at Hugging Face, or a "
    "URI that begins with file://, hf:// or package://"
)
GGUF = ".gguf"
MAX_NAME = 40
"""Characters of a service's name."""


def model_uri(option: str, text: str) -> str:
    """Return the URI of the model that an option names; raises `BadInput`.

    What is a path here, or looks like one, is that path; else ORGANISATION/NAME is a repository of
    Hugging Face.
    """
    if text.startswith(PACKAGE):
        return text
    if text.startswith(LOCAL):
        return local_uri(option, text.removeprefix(LOCAL))
    place = os.path.expanduser(text)
    if not text.startswith(HUB) and is_path(place, text):
        return local_uri(option, place)
    repository = text.removeprefix(HUB)
    if REPOSITORY.fullmatch(repository):
        return f"{HUB}{repository}"
    raise BadInput(f"{option} {text!r} is not allowed; allowed: {ALLOWED}")


def is_path(place: str, text: str) -> bool:
    """Whether a text names a path: one that exists, that is written as one, or in a folder here."""
    written = text[:1] in (".", "/", "~") or text.lower().endswith(GGUF)
    return written or os.path.exists(place) or ("/" in text and Path(text).parent.is_dir())


def local_uri(option: str, place: str) -> str:
    """Return the URI of a model on this machine; raises `BadInput` if there is none."""
    path = Path(place)
    if not path.exists():
        raise BadInput(f"{option} {place} does not exist; allowed: {ALLOWED}")
    if path.is_file() and path.suffix.lower() != GGUF:
        raise BadInput(f"{option} {place} is not a .gguf file; allowed: {ALLOWED}")
    if path.is_dir() and not (path / "config.json").is_file():
        raise BadInput(f"{option} {place} has no config.json; allowed: {ALLOWED}")
    return f"{LOCAL}{os.path.abspath(path)}"


def model_name(uri: str) -> str:
    """Return what people call the model of a URI: the last part of its path."""
    last = uri.partition("://")[2].rstrip("/").rpartition("/")[2]
    if uri.startswith(HUB):
        last = last.partition("@")[0]
    return re.sub(r"\.gguf$", "", last, flags=re.IGNORECASE) or "model"


def service_name(name: str) -> str:
    """Return a name that Kubernetes takes for the service of a model."""
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return words[:MAX_NAME].strip("-") or "model"


def borrows_embedding(uri: str) -> bool:
    """True for a draft on this machine that was made for one target and holds no embedding, as
    those of `outrider distil`: its config names the target."""
    if not uri.startswith(LOCAL):
        return False
    try:
        config = json.loads((Path(uri.removeprefix(LOCAL)) / "config.json").read_text())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(config, dict) and isinstance(config.get("target"), dict)
