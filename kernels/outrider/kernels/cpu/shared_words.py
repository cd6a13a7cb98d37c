"""Words that two processes read and write in memory that they share, called from Python.

A reader that is about to sleep says so in a word and then looks again; a writer publishes and then
looks at that word. Both in this order, for all processors: so one of the two sees the other.
"""

from numba import njit

from outrider.kernels.jit.atomics import exchange, read, write


@njit("int64(int64[::1], int64)", cache=True)
def load(words, index):  # type: ignore[no-untyped-def]
    """Return words[index]; what was written before it was set is seen by what follows."""
    return read(words, index)


@njit("void(int64[::1], int64, int64)", cache=True)
def store(words, index, value):  # type: ignore[no-untyped-def]
    """Set words[index]; who sees it sees all that was written before."""
    write(words, index, value)


@njit("int64(int64[::1], int64, int64, int64, int64)", cache=True)
def publish(words, index, value, asleep, least):  # type: ignore[no-untyped-def]
    """Set words[index]; if words[asleep] is `least` or more, set it to 0, and return what it was.

    One caller gets more than 0 for each sleep: it has to wake the sleeper. Looks before it
    exchanges, for a word that is only read stays in the caches of both processors.
    """
    write(words, index, value)
    if read(words, asleep) < least:
        return 0
    return exchange(words, asleep, 0)


@njit("int64(int64[::1], int64, int64, int64)", cache=True)
def fall_asleep(words, asleep, sleep, index):  # type: ignore[no-untyped-def]
    """Set words[asleep] to `sleep`, then return words[index]."""
    write(words, asleep, sleep)
    return read(words, index)
