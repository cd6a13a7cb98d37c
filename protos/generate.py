"""Writes the stubs beside their .proto files: `make proto`.

The generator is pinned a little old on purpose (group `proto`): its output loads on newer runtimes,
new output refuses older ones.
"""

import shutil
import sys
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).parent


def generate(out: Path) -> None:
    """Compile every .proto file below `ROOT` into `out`; `RuntimeError` if protoc refuses."""
    for path in sorted(ROOT.rglob("*.proto")):
        arguments = [
            "protoc",
            f"--proto_path={ROOT}",
            f"--plugin=protoc-gen-mypy={plugin('protoc-gen-mypy')}",
            f"--python_out={out}",
            f"--mypy_out=quiet:{out}",
        ]
        if "\nservice " in path.read_text():
            arguments += [
                f"--plugin=protoc-gen-mypy_grpc={plugin('protoc-gen-mypy_grpc')}",
                f"--grpc_python_out={out}",
                f"--mypy_grpc_out=quiet:{out}",
            ]
        if protoc.main([*arguments, str(path)]) != 0:
            raise RuntimeError(f"protoc refused {path}")


def plugin(name: str) -> str:
    """Path of a protoc plugin in this interpreter's own environment."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        raise RuntimeError(f"{name} is missing: run `make sync` first")
    return found


if __name__ == "__main__":
    generate(ROOT)
