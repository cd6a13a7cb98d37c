"""Files that settings name: their text, and what they hold by now."""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from outrider.contract.settings import SettingsError

logger = logging.getLogger(__name__)
T = TypeVar("T")
Stamp = tuple[int, int, int]


def read_text(name: str, file: str) -> str:
    """Return the text of the file of a setting; raises `SettingsError` that names both."""
    try:
        return Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"settings.{name}: {file} cannot be read: {error}") from error


@dataclass(slots=True)
class WatchedFiles(Generic[T]):
    """What files hold, read again whenever they have changed."""

    files: tuple[str, ...]
    read: Callable[[], T]
    """Reads all of them; raises `SettingsError`."""
    news: Callable[[T], str]
    """Says in words what is in force after a change."""
    trouble: str
    """Words for what follows where they cannot be read."""
    fallback: T | None = None
    """In force where they cannot be read; None: what they held before."""
    _value: T = field(init=False)
    _stamps: tuple[Stamp | None, ...] | None = None
    """Stamps of the files that were read last; None: the files could not be read."""
    _problem: str = ""

    def __post_init__(self) -> None:
        self._read()

    def current(self) -> T:
        """Return what they hold now."""
        if self._look() != self._stamps:
            try:
                self._read()
                self._problem = ""
                logger.info(self.news(self._value))
            except SettingsError as error:  # half of it is written: the next look reads again
                self._stamps = None
                self._value = self._value if self.fallback is None else self.fallback
                if self._problem != str(error):
                    logger.error("%s: %s", self.trouble, error)
                self._problem = str(error)
        return self._value

    def _read(self) -> None:
        """Read them; once more if they were replaced meanwhile, for they are read one by one."""
        stamps, self._value = self._look(), self.read()
        self._stamps = self._look()
        if self._stamps != stamps:
            self._value = self.read()

    def _look(self) -> tuple[Stamp | None, ...]:
        return tuple(map(stamp, self.files))


def stamp(file: str) -> Stamp | None:
    """Return what is another for another file; None: there is none."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
