"""Pair of processes over torch.distributed: arrays sent from point to point, with gloo.

A group of two with connections of its own, beside any other group of either process. gloo sends to
a receive that was posted; one that was posted ahead saves a way there and back. Leaves what the
arrays hold to the caller. Loads torch.
"""

import contextlib
import os
from datetime import timedelta
from typing import Any

import torch
from numpy.typing import NDArray

from outrider.worker.errors import LinkBroken, PeerLeft
from outrider.worker.host.rendezvous import gloo

INTERFACE = "GLOO_SOCKET_IFNAME"
"""Environment variable, torch's own: the network interface that carries the arrays."""
FOR_EVER = timedelta(days=365)
AT_ONCE = timedelta(milliseconds=1)
"""The shortest that a wait can be."""
ARRAYS, NEVER = 0, 1
"""Tags: of arrays, and of one that never comes."""


class Transfer:
    """An array on its way; it must not be written before it has been sent, nor read before it has
    come."""

    __slots__ = ("_work", "array")

    def __init__(self, work: Any, array: NDArray[Any]) -> None:
        self._work = work
        self.array = array

    def wait(self) -> None:
        """Wait until it has been sent or has come; raise `PeerLeft`."""
        try:
            self._work.wait(FOR_EVER)
        except RuntimeError as error:
            raise PeerLeft(reason(error)) from None


class ProcessPair:
    """This process and one other. Any thread may send; arrays arrive in the order of sending."""

    def __init__(self, store: Any, rank: int, host: str, seconds: float) -> None:
        """Meet the other in `store`, one of torch's, as number 0 or 1; both must come in time.

        `host` is this process's own address that the other can reach, unless `GLOO_SOCKET_IFNAME`
        names an interface. Raises `LinkBroken`.
        """
        options = gloo._Options()
        options._timeout = timedelta(seconds=seconds)
        options._threads = 1
        interface = os.environ.get(INTERFACE, "")
        where = {"interface": interface} if interface else {"hostname": host}
        try:
            options._devices = [gloo.create_device(**where)]
            self._group = gloo(store, rank, 2, options)
        except RuntimeError as error:
            raise LinkBroken(f"no group of torch.distributed came up: {reason(error)}") from None
        self._other = 1 - rank

    def send(self, array: NDArray[Any]) -> Transfer:
        """Begin to send an array, without a wait; raise `PeerLeft`."""
        return self._begin(self._group.send, array, ARRAYS)

    def post(self, array: NDArray[Any]) -> Transfer:
        """Begin to receive into an array, of the same bytes as the one sent; raise `PeerLeft`."""
        return self._begin(self._group.recv, array, ARRAYS)

    def close(self) -> None:
        """End the connections, with which every wait of either process ends, by `PeerLeft`.

        A wait of gloo that runs out ends all of its group, and nothing else that it offers does.
        """
        with contextlib.suppress(RuntimeError):
            self._group.recv([torch.zeros(1)], self._other, NEVER).wait(AT_ONCE)

    def _begin(self, verb: Any, array: NDArray[Any], tag: int) -> Transfer:
        try:
            return Transfer(verb([torch.from_numpy(array)], self._other, tag), array)
        except RuntimeError as error:
            raise PeerLeft(reason(error)) from None


def reason(error: RuntimeError) -> str:
    """Return the first sentence of an error of gloo, without the place in its source."""
    return str(error).rpartition("] ")[2].split(". ")[0] or "no reason was given"
