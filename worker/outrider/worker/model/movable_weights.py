"""Weights of one model that can leave their memory for a file and come back to the same addresses.

On a CPU the file stands for host memory: its pages are the system's to keep or to write out. A
thread of its own copies; compiled code keeps its addresses, and runs no pass meanwhile. What is
mapped from a checkpoint, as an embedding in fp32, is in a file already and stays. Leaves when to
`speculation.draft_memory`.
"""

import tempfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.cpu.forward import PassWeights
from outrider.worker.host.memory_region import MemoryRegion, bytes_of


class CopyFailed(Exception):
    """A copy that could not begin, or end."""


class MovableWeights:
    """Packed weights in a region of their own, and their file once they have left it."""

    def __init__(self, weights: PassWeights, folder: Path) -> None:
        """Copy `weights`; `folder` is for the file, which no other process can open, and which is
        there only while the weights are in it."""
        own = [array for array in _arrays(weights) if not is_mapped(array)]
        self._region = MemoryRegion(sum(bytes_of(array.shape, array.dtype) for array in own))
        self._region.use_huge_pages()
        self.weights: PassWeights = _changed(weights, self._place)
        """The copy: what passes read."""
        self._folder = folder
        self._file: BinaryIO | None = None
        """Holds the weights while they are away."""
        self._copy: Future[None] | None = None
        """The copy under way."""

    @property
    def bytes(self) -> int:
        """Bytes of memory that they take."""
        return self._region.size

    def offload(self) -> None:
        """Begin to copy them to the file and to give their memory back; no pass may run now.

        Raises `CopyFailed` where that cannot begin.
        """
        self._begin(self._offload)

    def reload(self) -> None:
        """Begin to read them back from the file; raises as `offload`."""
        self._begin(self._reload)

    def finished(self) -> bool:
        """Return whether the copy that was begun has ended; raises `CopyFailed` if it has failed.

        Of one that has failed nothing is lost: weights are where they were.
        """
        if self._copy is None or not self._copy.done():
            return False
        copy, self._copy = self._copy, None
        if (failure := copy.exception()) is not None:
            raise CopyFailed(str(failure) or repr(failure)) from failure
        return True

    def close(self) -> None:
        """Wait for a copy under way, and drop the file."""
        if self._copy is not None:
            self._copy.exception()
        if self._file is not None:
            self._file.close()

    def _begin(self, copy: Callable[[], None]) -> None:
        executor = ThreadPoolExecutor(1, "draft's weights")
        try:
            self._copy = executor.submit(copy)
        except RuntimeError as error:  # the system has no thread to give
            raise CopyFailed(str(error)) from error
        finally:
            executor.shutdown(wait=False)

    def _offload(self) -> None:
        file: Any = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115
        try:
            _all(file.write, self._region.bytes.data)
        except BaseException:
            file.close()
            raise
        self._file = file
        self._region.release()

    def _reload(self) -> None:
        """Read them; where that fails, what has come goes again, for others have its bytes then."""
        file: Any = self._file
        try:
            file.seek(0)
            _all(file.readinto, self._region.bytes.data)
        except BaseException:
            self._region.release()
            raise
        self._file = None
        file.close()

    def _place(self, array: NDArray[Any]) -> NDArray[Any]:
        if is_mapped(array):
            return array
        placed = self._region.array(array.shape, array.dtype)
        placed[...] = array
        return placed


def _all(copy: Callable[[memoryview], int | None], view: memoryview) -> None:
    """Repeat a call that reads or writes a part, until all is done; raises `OSError`."""
    done = 0
    while done < len(view):
        count = copy(view[done:])
        if not count:
            raise OSError(f"the file of weights ends after {done} of {len(view)} bytes")
        done += count


def is_mapped(array: NDArray[Any]) -> bool:
    """True if its memory is a file's."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
        owner = owner.base
    return isinstance(owner, np.memmap)


def _arrays(weights: PassWeights) -> list[NDArray[Any]]:
    found: list[NDArray[Any]] = []
    _changed(weights, lambda array: found.append(array) or array)  # type: ignore[func-returns-value]
    return found


def _changed(weights: Any, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Any:
    """Return weights with every array changed that has elements, in tuples of them."""
    if isinstance(weights, np.ndarray):
        return change(weights) if weights.size else weights
    if not isinstance(weights, tuple):
        return weights
    parts = (_changed(part, change) for part in weights)
    return type(weights)._make(parts) if hasattr(weights, "_make") else tuple(parts)
