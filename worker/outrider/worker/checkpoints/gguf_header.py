"""The header of a GGUF file: its metadata, and where each tensor lies, without reading a tensor.

`gguf.GGUFReader` takes seconds for a vocabulary of 150,000 tokens, and a file that cannot be served
is to be refused at once. Layout: ggml's docs/gguf.md. Leaves what the values mean to `gguf_file`.
"""

import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from outrider.worker.errors import ModelError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = 32
MAX_MEMBERS = 1 << 22
"""Most fields, tensors, their axes, and values of all arrays together: vocabularies have up to 2^18
tokens and 2^19 merges."""
SCALARS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
"""`struct`'s letter of each fixed-size type of value."""
STRING, ARRAY = 8, 9
DAMAGE = (struct.error, LookupError, ValueError, ArithmeticError)
"""What reading bytes that are no header raises."""


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor, as its blocks lie in the file."""

    name: str
    kind: gguf.GGMLQuantizationType
    data: NDArray[np.uint8]
    """[rows, ..., bytes of a row], mapped."""

    def dequantised(self) -> NDArray[np.float32]:
        """Return the values; raises `NotImplementedError` for a kind that `gguf` cannot read."""
        return np.asarray(gguf.dequantize(self.data, self.kind), np.float32)


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """The metadata and the tensors of one file."""

    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]
    """Tensors by name, in the order of the file."""

    @classmethod
    def read(cls, path: Path) -> "GgufHeader":
        """Read the header of a file, and check that its tensors lie inside; raises `ModelError`."""
        size = path.stat().st_size
        try:
            return _Bytes(np.memmap(path, np.uint8, "r")).header()
        except DAMAGE as error:
            what = f"its {size} bytes end too early, or are damaged"
            raise ModelError(f"{path}: not a readable GGUF file: {what} ({error})") from error


class _Bytes:
    """Reads a header from its first byte on; raises `DAMAGE`."""

    def __init__(self, content: NDArray[np.uint8]) -> None:
        self._content, self._at, self._members = content, 0, 0

    def header(self) -> GgufHeader:
        if self._take(len(MAGIC)) != MAGIC:
            raise ValueError(f"it does not begin with {MAGIC.decode()}")
        (version,) = self._numbers("I")
        if version not in VERSIONS:
            raise ValueError(f"version {version}; allowed: {VERSIONS}")
        count, fields = map(self._counted, self._numbers("QQ"))
        metadata = {self._string(): self._value(*self._numbers("I")) for _ in range(fields)}
        places = [self._place() for _ in range(count)]
        alignment = int(metadata.get("general.alignment", ALIGNMENT))
        begin = -(-self._at // alignment) * alignment
        return GgufHeader(metadata, {place[0]: self._tensor(begin, *place) for place in places})

    def _place(self) -> tuple[str, tuple[int, ...], gguf.GGMLQuantizationType, int]:
        name = self._string()
        axes = self._counted(*self._numbers("I"))
        shape = self._numbers(f"{axes}Q")[::-1]  # the last axis comes first
        kind, offset = self._numbers("IQ")
        return name, shape, gguf.GGMLQuantizationType(kind), offset

    def _tensor(
        self,
        begin: int,
        name: str,
        shape: tuple[int, ...],
        kind: gguf.GGMLQuantizationType,
        offset: int,
    ) -> GgufTensor:
        stored = gguf.quant_shape_to_byte_shape(shape, kind)
        data = self._content[begin + offset : begin + offset + prod(stored)]
        return GgufTensor(name, kind, np.asarray(data).reshape(stored))

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._string()
        if kind != ARRAY:
            return self._numbers(SCALARS[kind])[0]
        inner, count = self._numbers("IQ")
        self._counted(count)
        if inner == STRING:
            return [self._string() for _ in range(count)]
        return list(self._numbers(f"{count}{SCALARS[inner]}"))

    def _counted(self, count: int) -> int:
        """Return a count of members that may become objects, too."""
        self._members += count
        if self._members > MAX_MEMBERS:
            raise ValueError(f"{self._members} members; at most {MAX_MEMBERS} are read")
        return count

    def _string(self) -> str:
        return str(self._take(self._numbers("Q")[0]), "utf-8", "replace")

    def _numbers(self, letters: str) -> tuple[Any, ...]:
        found = struct.unpack_from(f"<{letters}", self._content.data, self._at)
        self._at += struct.calcsize(f"<{letters}")
        return found

    def _take(self, size: int) -> bytes:
        begin, self._at = self._at, self._at + size
        if self._at > len(self._content):
            raise ValueError(f"{size} bytes are wanted at {begin}")
        return self._content[begin : self._at].tobytes()
