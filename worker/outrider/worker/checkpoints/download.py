"""Download of a Hugging Face repository, told in bytes, that goes on where an earlier one was cut.

Leaves what is fetched, and from where, to `source`, one file to `partial_file`, and the words of
errors to `hub_errors`.
"""

import io
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.worker.checkpoints.fingerprint import Progress
from outrider.worker.checkpoints.hub_errors import ELSEWHERE, http_error, reason
from outrider.worker.checkpoints.partial_file import PartialFile
from outrider.worker.errors import ModelError
from outrider.worker.host.disk_cache import check_room

if TYPE_CHECKING:
    from huggingface_hub import DryRunFileInfo

STAGE = "download"
CONFIG = "config.json"
AT_ONCE = 8
"""Files that are fetched at the same time, as the library does."""


def download(
    repository: str,
    revision: str | None,
    needed: Sequence[str],
    progress: Progress,
    begin: Callable[[Path], None],
) -> Path:
    """Return the folder of a repository's needed files, fetched if they are not there.

    `begin` is given the folder once its config.json is there, before anything large is fetched, and
    may refuse it. Raises `ModelError`.
    """
    found = _Download(repository, revision, needed, progress)
    try:
        return found.run(begin)
    except (http_error(), OSError, ValueError) as error:
        raise ModelError(f"{reason(error, repository, revision)}{found.kept}") from error


class _Download:
    """A download of one revision."""

    def __init__(
        self, repository: str, revision: str | None, needed: Sequence[str], progress: Progress
    ) -> None:
        self._repository, self._revision, self._needed = repository, revision, list(needed)
        self._count = _Count(progress)

    def run(self, begin: Callable[[Path], None]) -> Path:
        """Fetch what is missing; return the folder."""
        from huggingface_hub.errors import DryRunError

        try:
            plan: list[DryRunFileInfo] = self._snapshot(self._needed, dry_run=True)
        except DryRunError as error:
            return self._cached(error)
        missing = [one for one in plan if not Path(one.local_path).exists()]
        if plan and not missing:
            return Path(plan[0].local_path).parent
        if all(one.filename != CONFIG for one in plan):
            raise ValueError(
                f"it has no {CONFIG}, and nothing of it is fetched; download a .gguf file of it by "
                "other means, and name that"
            )
        with ThreadPoolExecutor(AT_ONCE) as pool:
            files = sorted(pool.map(self._facts, missing), key=lambda file: file.size)
        _check_room(files)
        folder = Path(self._snapshot([CONFIG]))
        begin(folder)
        self._count.begin(plan, files)
        self._fetch(folder.name, files)
        return folder

    def _snapshot(self, wanted: list[str], **options: Any) -> Any:
        """Ask the library for files, without bars."""
        from huggingface_hub import snapshot_download

        options |= {"ignore_patterns": ["*/*"], "tqdm_class": _bars(lambda n: None)}
        return snapshot_download(
            self._repository, revision=self._revision, allow_patterns=wanted, **options
        )

    @property
    def kept(self) -> str:
        """What is left of it for a next one, in words; empty: nothing came."""
        return self._count.in_words()

    def _cached(self, error: Exception) -> Path:
        """Return the folder if it is whole, where nothing can be asked; or else raise why not."""
        from huggingface_hub.errors import LocalEntryNotFoundError

        try:
            return Path(self._snapshot(self._needed, local_files_only=True))
        except LocalEntryNotFoundError:
            raise error.__cause__ or error from None

    def _facts(self, one: "DryRunFileInfo") -> PartialFile:
        """Return a file by what the hub says of it."""
        from huggingface_hub import get_hf_file_metadata, hf_hub_url

        url = hf_hub_url(self._repository, one.filename, revision=one.commit_hash)
        found = get_hf_file_metadata(url)
        if found.etag is None or found.size is None:
            raise OSError(f"{url} has no ETag or no size: no Hugging Face Hub answers there")
        storage = Path(one.local_path).parents[2]
        return PartialFile(one.filename, url, found.etag, found.size, storage)

    def _fetch(self, commit: str, files: Sequence[PartialFile]) -> None:
        """Fetch files side by side; the first error ends all, and is raised."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            fetched = [pool.submit(self._fetch_one, commit, file) for file in files]
            try:
                for one in as_completed(fetched):
                    one.result()
            except BaseException:
                self._count.stop()
                pool.shutdown(cancel_futures=True)
                raise

    def _fetch_one(self, commit: str, file: PartialFile) -> None:
        from huggingface_hub import constants, hf_hub_download

        bars = _bars(partial(self._count.tell, file.name))
        if file.size <= constants.MAX_HTTP_DOWNLOAD_SIZE:  # a larger one the library begins anew
            file.fetch(bars)
        hf_hub_download(self._repository, file.name, revision=commit, tqdm_class=bars)  # links it


def _check_room(files: Sequence[PartialFile]) -> None:
    """Raise `OSError` where Hugging Face's cache has no room for what is to come of files."""
    from huggingface_hub import constants

    cache = Path(constants.HF_HUB_CACHE)
    cache.mkdir(parents=True, exist_ok=True)
    check_room(cache, sum(file.size - file.there for file in files), ELSEWHERE)


class _Stopped(Exception):
    """Another file could not be had."""


class _Count:
    """Bytes of all files of a download that are there."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self._missing: Sequence[PartialFile] = ()
        self._there: dict[str, int] = {}
        self._total = 0
        self._stopped = False

    def begin(self, plan: "Sequence[DryRunFileInfo]", missing: Sequence[PartialFile]) -> None:
        """Tell what is there before anything comes."""
        self._missing = missing
        self._there = {one.filename: one.file_size or 0 for one in plan}
        self._total = sum(self._there.values())
        self._there |= {file.name: file.there for file in missing}
        self._progress(STAGE, sum(self._there.values()), self._total)

    def tell(self, name: str, there: int) -> None:
        """Tell how much of a file is there; raises `_Stopped` where the download ends."""
        with self._lock:
            if self._stopped:
                raise _Stopped
            self._there[name] = there
            self._progress(STAGE, min(sum(self._there.values()), self._total), self._total)

    def in_words(self) -> str:
        """Say how much is there; empty where nothing had begun."""
        if not self._total:
            return ""
        there = self._there | {file.name: file.there for file in self._missing}
        done, total = (count / 1e6 for count in (sum(there.values()), self._total))
        return f"; {done:,.1f} of {total:,.1f} MB are there, and the next pull goes on with them"

    def stop(self) -> None:
        """End the download: who tells more is stopped."""
        self._stopped = True


def _bars(tell: Callable[[int], None]) -> Any:
    """Return a class of progress bars that draw nothing and `tell` how far each is."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    class Bars(tqdm):
        monitor_interval = 0

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **(options | {"file": io.StringIO()}))

        def update(self, n: float | None = 1) -> None:
            super().update(n)
            tell(int(self.n))

    return Bars
