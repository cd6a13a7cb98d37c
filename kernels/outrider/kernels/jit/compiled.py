"""numba's `njit`, with a cache of compiled code that notices every change of a source.

numba itself looks only at the file of the function that is compiled, not at those that it calls: a
changed callee in another file would go unnoticed. So each state of the sources has its own folder,
in `NUMBA_CACHE_DIR` or the user's cache, wherever they lie; where that cannot be written, numba
finds another place. Processes that start together compile each function once between them. A call
with a constant takes the code for all numbers, where numba would compile more for that one.
"""

import contextlib
import fcntl
import hashlib
import inspect
import logging
import os
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding
import numba
from numba.core import caching, dispatcher, event, sigutils
from numba.core.types.misc import unliteral

import outrider
from outrider.contract.files import user_cache
from outrider.kernels.jit import isa

logger = logging.getLogger(__name__)

COMPILED = (
    ("kernels/jit/*.py", b""),
    ("kernels/cpu/*.py", b""),
    ("kernels/sampling/*.py", b""),
    ("kernels/gpu/attention*.py", b""),
    ("kernels/gpu/tree_growth.py", b""),
    ("worker/**/*.py", b"njit"),
)
"""Files of the namespace with compiled functions or their constants, and what each contains."""
LONGEST_WAIT = 30.0
"""Seconds for another process that compiles the same function; then it is compiled here, too. Less
than an engine may be silent (`worker/engine/heartbeat`)."""
PAUSE = 0.02
"""Seconds between two looks whether it is done."""


def folder() -> Path:
    """Return the folder of code compiled from these very sources, by this numba, for this
    instruction set."""
    compilers = f"{isa.feature_string()} {numba.__version__} {llvmlite.__version__}"
    digest = hashlib.sha256(compilers.encode())
    for portion in sorted(outrider.__path__):
        for pattern, mark in COMPILED:
            for source in sorted(Path(portion).glob(pattern)):
                if mark in (text := source.read_bytes()):
                    name = source.relative_to(portion).as_posix()
                    digest.update(name.encode() + b"\0" + text + b"\0")
    given = os.environ.get("NUMBA_CACHE_DIR")
    parent = Path(given) if given else user_cache() / "compiled"
    return parent / digest.hexdigest()[:16]


def place(py_file: str) -> str | None:
    """Return a module's folder within the namespace; None for modules of others."""
    for portion in outrider.__path__:
        if Path(py_file).is_relative_to(portion):
            return str(Path(py_file).parent.relative_to(portion))
    return None


class Locator(caching.UserProvidedCacheLocator):
    """Place of a function's code in that folder: the same for every copy of the same sources."""

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """Return it by the module's place in the namespace; as numba does for other functions."""
        own = place(py_file)
        return str(super().get_suitable_cache_subpath(py_file)) if own is None else own


class SharedCache(caching.FunctionCache):
    """Cache of one function's code, which one process at a time compiles for a signature.

    Who finds nothing has the signature's lock until it has compiled and saved, or failed; others
    wait for that, and compile other signatures meanwhile.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._locks: dict[str, int] = {}
        """Descriptors, by signature."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the code for a signature; None, with the lock, if it has to be compiled."""
        found = super().load_overload(sig, target_context)
        if found is None and self._acquire(sig):
            found = super().load_overload(sig, target_context)
            if found is not None:
                self.release(sig)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save code that was compiled, for those who wait too."""
        index = self._lock("index")
        try:
            super().save_overload(sig, data)  # reads the index of all signatures, and writes it
        finally:
            if index is not None:
                os.close(index)
            self.release(sig)

    def release(self, sig: Any) -> None:
        """Let others compile for a signature, if this process has its lock."""
        lock = self._locks.pop(_name(sig), None)
        if lock is not None:
            os.close(lock)

    def _acquire(self, sig: Any) -> bool:
        """Take a signature's lock; False where it is there already, or cannot be had."""
        name = _name(sig)
        if name in self._locks:
            return False
        lock = self._lock(name)
        if lock is not None:
            self._locks[name] = lock
        return lock is not None

    def _lock(self, name: str) -> int | None:
        """Return a descriptor with one of this function's locks; None if it cannot be had."""
        try:
            return _locked(Path(self._cache_path, f"{self._impl.filename_base}.{name}.lock"))
        except OSError as error:
            warn_unlocked(error.strerror)
            return None


def _name(sig: Any) -> str:
    """Return a short name of the types of a signature, the same in all processes."""
    arguments, _ = sigutils.normalize_signature(sig)
    return hashlib.sha256(str(arguments).encode()).hexdigest()[:12]


def _locked(path: Path) -> int | None:
    """Return a descriptor with the lock of a file; None if another process keeps it for too long.

    Raises `OSError` where files cannot be locked.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + LONGEST_WAIT
        while time.monotonic() < deadline:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return lock
            time.sleep(PAUSE)
    except OSError:
        os.close(lock)
        raise
    os.close(lock)
    return None


@cache
def warn_unlocked(reason: str) -> None:
    """Say, once for each reason, that processes may compile the same function twice."""
    logger.warning(
        "%s cannot be locked (%s): processes that start together may compile the same functions",
        *(numba.config.CACHE_DIR, reason),
    )


class Failures(event.Listener):
    """Compilations that fail: nobody waits for what they would have saved."""

    def on_start(self, begun: Any) -> None:
        """Do nothing: it may go well."""

    def on_end(self, ended: Any) -> None:
        """Give back the lock of a function that has no code for the signature now."""
        compiled = ended.data["dispatcher"]
        kept = getattr(compiled, "_cache", None)
        if isinstance(kept, SharedCache) and tuple(ended.data["args"]) not in compiled.overloads:
            kept.release(tuple(ended.data["args"]))


class FirstCompilation(event.Listener):
    """Calls once, when the first function begins to be compiled: those on disk are only loaded."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call

    def on_start(self, begun: Any) -> None:
        """Call; compilations of callees begin within those of their callers."""
        call, self._call = self._call, None
        if call is not None:
            call()

    def on_end(self, ended: Any) -> None:
        """Do nothing: another may follow."""


def at_first_compilation(call: Callable[[], None]) -> contextlib.AbstractContextManager[None]:
    """Return a context in which `call` is called once, if anything is compiled."""
    listening: contextlib.AbstractContextManager[None] = event.install_listener(
        "numba:compile", FirstCompilation(call)
    )
    return listening


def cache_of(function: Callable[..., Any]) -> caching.FunctionCache:
    """Return the cache of a function: a shared one for those of the namespace."""
    own = place(inspect.getfile(function)) is not None
    return SharedCache(function) if own else caching.FunctionCache(function)


def call_template(callee: Any, args: Sequence[Any], kws: dict[str, Any]) -> Any:
    """Type a call in compiled code, as numba does; of the namespace's functions, by the types of
    constants and not by their values.

    numba would compile the callee for the constant that a loop's variable begins with, and again
    for the variable, and with both all that they call.
    """
    if isinstance(getattr(callee, "_cache", None), SharedCache):
        args = tuple(map(unliteral, args))
        kws = {name: unliteral(type_) for name, type_ in kws.items()}
    return numbas_call_template(callee, args, kws)


numba.config.CACHE_DIR = str(folder())
numba.config.CACHE_LOCATOR_CLASSES = ",".join(
    (f"{__name__}.Locator", "InTreeCacheLocator", "UserWideCacheLocator")
)
if isa.features() != dict(llvmlite.binding.get_host_cpu_features()):
    numba.config.CPU_FEATURES = isa.feature_string()
dispatcher.FunctionCache = cache_of  # type: ignore[attr-defined]
numbas_call_template = dispatcher.Dispatcher.get_call_template
dispatcher.Dispatcher.get_call_template = call_template  # type: ignore[method-assign, assignment]
event.register("numba:compile", Failures())

njit = partial(numba.njit, cache=True, nogil=True)
"""Compiles on first call, keeps the result on disk, holds no interpreter lock while it runs."""
