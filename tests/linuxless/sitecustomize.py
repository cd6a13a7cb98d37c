"""Python as it is without what Linux alone has, for processes with this on their path.

Python imports a module of this name at its start. Functions and constants that macOS lacks are
gone, nothing under /proc and /sys can be opened, and `sys.platform` is "darwin" for the project;
other packages have been built for the system that there is.
"""

import fcntl
import mmap
import os
import socket
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

ABSENT = {
    os: ("memfd_create", "MFD_", "O_PATH", "O_TMPFILE", "sched_", "posix_fadvise", "POSIX_FADV_",
         "posix_fallocate", "pidfd_open", "eventfd", "EFD_", "splice", "copy_file_range", "pipe2"),
    fcntl: ("F_ADD_SEALS", "F_GET_SEALS", "F_SEAL_"),
    mmap: ("MADV_", "MAP_POPULATE"),
    socket: ("MSG_CMSG_CLOEXEC", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "SO_PEERCRED"),
}  # fmt: skip
"""Beginnings of names."""
FUNCTIONS = ("ppoll",)
"""Functions of the C library that Linux alone has."""
FOLDERS = ("/proc/", "/sys/")


class System(ModuleType):
    """`sys` of another platform."""

    platform = "darwin"

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)


class Finder(PathFinder):
    """Finds modules as ever, and gives those of the project another `sys`."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = super().find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None and fullname.startswith("outrider."):
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                if vars(module).get("sys") is sys:
                    module.sys = SYSTEM  # type: ignore[attr-defined]

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Raise what macOS would."""
    if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], str):
        if arguments[0].startswith(FOLDERS):
            raise FileNotFoundError(2, "No such file or directory", arguments[0])
    elif event == "ctypes.dlsym" and arguments[1] in FUNCTIONS:
        raise AttributeError(arguments[1])


for module, beginnings in ABSENT.items():
    for name in [name for name in vars(module) if name.startswith(beginnings)]:
        delattr(module, name)
SYSTEM = System("sys")
sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
sys.addaudithook(refuse)
