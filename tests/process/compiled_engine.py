"""Prints what an engine compiles beyond what `compile` did for its settings, which come by stdin.

As a process: `python -m tests.process.compiled_engine`, with an engine's settings on stdin. Prints
how many kernels there were beforehand, then the further ones, a line each.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from numba.core.dispatcher import Dispatcher

from outrider.cli.workers.compilation import shares_of
from outrider.contract.settings import WorkerSettings
from outrider.worker.engine.transport import ThreadTransport
from outrider.worker.launch import compilation
from outrider.worker.launch.prepare import prepare_models
from outrider.worker.launch.run import build_engine


def kernels() -> Iterator[str]:
    """Yield the functions of the namespace that were compiled or loaded, with their types."""
    for name, module in [*sys.modules.items()]:
        if name.startswith("outrider."):
            for found in vars(module).values():
                if isinstance(found, Dispatcher) and found.__module__ == name:
                    yield from (f"{name}.{found.__name__}{types}" for types in found.overloads)


def main() -> None:
    """Compile, then build the engine."""
    settings = WorkerSettings.from_json(sys.stdin.read())
    for share in shares_of([settings]):
        with TemporaryDirectory() as folder:
            compilation.compile_engine(share, Path(folder))
    beforehand = set(kernels())
    build_engine(settings, prepare_models(settings), ThreadTransport(lambda _: None))
    print(len(beforehand), *sorted(set(kernels()) - beforehand), sep="\n")


if __name__ == "__main__":
    main()
