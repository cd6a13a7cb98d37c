"""The clock of `time.monotonic`, for compiled code."""

import time

import numpy as np
from numba import njit, types

CLOCK: int = getattr(time, "CLOCK_UPTIME_RAW", getattr(time, "CLOCK_MONOTONIC", 1))
"""The one that `time.monotonic` reads: on macOS the first, elsewhere the second."""
_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.voidptr))


@njit(cache=True, nogil=True)
def monotonic():  # type: ignore[no-untyped-def]
    """Return seconds, as `time.monotonic`."""
    read = np.zeros(2, np.int64)
    _clock_gettime(CLOCK, read.ctypes)
    return read[0] + 1e-9 * read[1]
