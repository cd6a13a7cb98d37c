"""One file of a Hugging Face repository, fetched into its cache and gone on with where it was cut.

`huggingface_hub` begins a file anew in each process, under a name of its own, and so does Xet, its
other way to fetch one. What is fetched here comes by HTTP and lies beside the blob that it becomes,
under the name that Hugging Face's own tools clean up.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outrider.worker.checkpoints.hub_errors import http_error, is_of_the_network

ENDING = ".incomplete"
SHA256_DIGITS = 64


@dataclass(frozen=True, slots=True)
class PartialFile:
    """A file that the cache lacks."""

    name: str
    url: str
    etag: str
    """SHA-256 of a large file's contents."""
    size: int
    """Bytes of the whole file."""
    storage: Path
    """Folder of its repository in the cache."""

    @property
    def blob(self) -> Path:
        """Place of the whole file."""
        return self.storage / "blobs" / self.etag

    @property
    def part(self) -> Path:
        """Place of the bytes that have come."""
        return self.blob.with_name(self.etag + ENDING)

    @property
    def there(self) -> int:
        """Bytes that need not be fetched."""
        for place in (self.blob, self.part):
            if place.is_file():
                return min(place.stat().st_size, self.size)
        return 0

    def fetch(self, bars: Any) -> None:
        """Fetch the bytes that are missing, told to a class of progress bars; processes take turns.

        Raises `OSError`, or an HTTP error, and leaves the part that a next call goes on with.
        """
        from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

        lock = self.storage.parent / ".locks" / self.storage.name / f"{self.etag}.lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        self.blob.parent.mkdir(parents=True, exist_ok=True)
        with WeakFileLock(lock):  # the one that the library takes for this blob
            if not self.blob.is_file():
                self._complete(bars)
                self.part.replace(self.blob)

    def _complete(self, bars: Any) -> None:
        with self.part.open("ab") as part:
            before = part.tell()
            if before > self.size:
                before = part.seek(part.truncate(0))
            self._append(part, bars)
            os.fsync(part.fileno())
        if before and not self._is_sound():
            self.part.unlink()
            raise OSError(f"{self.name} was damaged where it was cut, and is removed; pull again")

    def _append(self, part: Any, bars: Any) -> None:
        """Append what is missing, again and again for as long as anything comes."""
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        headers = build_hf_headers() | {"Accept-Encoding": "identity"}  # parts of it have places
        while True:
            before = part.tell()
            try:
                return http_get(
                    self.url,
                    part,
                    resume_size=before,
                    headers=headers,
                    expected_size=self.size,
                    displayed_filename=self.name,
                    tqdm_class=bars,
                )
            except http_error() as error:
                if not is_of_the_network(error) or part.tell() == before:
                    raise

    def _is_sound(self) -> bool:
        """True for the content that the etag names, where it names that."""
        if len(self.etag) != SHA256_DIGITS:
            return True
        with self.part.open("rb") as part:
            return hashlib.file_digest(part, "sha256").hexdigest() == self.etag
