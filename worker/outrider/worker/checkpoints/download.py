"""Download of a Hugging Face repository, told in bytes.

Leaves what is fetched, and from where, to `source`.
"""

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from outrider.worker.checkpoints.fingerprint import Progress
from outrider.worker.errors import ModelError

STAGE = "download"
LOCAL_SOURCES = "a folder or a .gguf file"
"""What can be named where nothing can be fetched."""
ERRNO = re.compile(r"^\[Errno -?\d+\] ")


def download(
    repository: str, revision: str | None, needed: Sequence[str], progress: Progress
) -> Path:
    """Return the folder of a repository's needed files, fetched if they are not there; raises
    `ModelError`."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined] # this release's httpx

    try:
        folder = snapshot_download(
            repository,
            revision=revision,
            allow_patterns=list(needed),
            ignore_patterns=["*/*"],
            tqdm_class=progress_bars(progress),
        )
    except (HTTPError, OSError, ValueError) as error:
        raise ModelError(_reason(error)) from error
    return Path(folder)


def _reason(error: Exception) -> str:
    """Say why a repository could not be had: in one line, where nothing answered or was asked."""
    from huggingface_hub import constants, errors
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined] # this release's httpx

    local = isinstance(error, errors.LocalEntryNotFoundError)
    if local and constants.HF_HUB_OFFLINE:
        return (
            "HF_HUB_OFFLINE is set and it is not in Hugging Face's cache; unset that, or name "
            f"{LOCAL_SOURCES}"
        )
    cause = error.__cause__ if local and error.__cause__ is not None else error
    if not isinstance(cause, HTTPError) or isinstance(cause, errors.HfHubHTTPError):
        return str(cause)  # of the server's answer, or of a file
    words = ERRNO.sub("", str(cause)) or "no answer"
    return (
        f"{constants.ENDPOINT} could not be reached ({words}); set HF_ENDPOINT to a mirror or "
        f"HTTPS_PROXY to a proxy, or name {LOCAL_SOURCES}"
    )


def progress_bars(progress: Progress) -> Any:
    """Return a class of progress bars that tell `progress` of bytes instead of drawing them.

    The library has one bar for bytes from the network and one for bytes in files, of which either
    may stand still: what is told is the further one.
    """
    from tqdm import tqdm  # type: ignore[import-untyped]

    most = 0

    class ByteBars(tqdm):
        monitor_interval = 0

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **(options | {"file": io.StringIO()}))

        def display(self, *args: Any, **options: Any) -> None:
            nonlocal most
            if self.unit == "B" and self.total:
                most = max(most, int(self.n))
                progress(STAGE, min(most, int(self.total)), int(self.total))

    return ByteBars
