"""Handles: NamedTuples of arrays that compiled functions take without unpacking them at each call.

numba reads a NamedTuple anew at every call: it encodes each field's name and unboxes each array,
about 0.15 µs an array (Zen 5: 1.9 µs for 12 arrays in two tuples, 0.46 µs for a handle of them).
What stays the same from call to call goes into a handle once.

    >>> import numpy as np
    >>> from typing import NamedTuple
    >>> from outrider.kernels.jit.compiled import njit
    >>> class Pair(NamedTuple):
    ...     first: np.ndarray
    ...     second: np.ndarray
    >>> sum_of = njit(cache=False)(lambda h: h.value.first[0] + h.value.second[0])
    >>> sum_of(handle(Pair(np.ones(1), np.ones(1))))
    2.0
"""

from typing import Generic, TypeVar

from numba import types
from numba.experimental import structref

from outrider.kernels.jit.compiled import njit

V = TypeVar("V")


@structref.register
class HandleType(types.StructRef):
    """numba's type of a handle."""


class Handle(structref.StructRefProxy, Generic[V]):
    """A NamedTuple that compiled functions read as `handle.value`; make one with `handle`."""

    value: V


structref.define_proxy(Handle, HandleType, ["value"])


def handle(value: V) -> Handle[V]:
    """Return a handle of a NamedTuple; its arrays stay alive with it, and are not copied.

    Code for a class from outside `outrider` is not kept on disk: the index of what is kept names
    all classes, and no process that cannot import one of them could read it.
    """
    make = _make_cached if type(value).__module__.startswith("outrider.") else _make_uncached
    made: Handle[V] = make(value)
    return made


def _make(value):  # type: ignore[no-untyped-def]
    return Handle(value)


_make_cached = njit()(_make)
_make_uncached = njit(cache=False)(_make)
