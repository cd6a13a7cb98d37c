"""The header of a GGUF file: read as `gguf` reads it, and damage of any kind is one error."""

import contextlib
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.contract.settings import ModelSettings
from outrider.worker.checkpoints.gguf_header import MAX_MEMBERS, GgufHeader
from outrider.worker.checkpoints.prepare import prepare
from outrider.worker.errors import ModelError
from tests.tiny_gguf import write_tiny_gguf
from tests.tiny_models import write_tiny


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gguf")
    return write_tiny_gguf(
        write_tiny(folder / "hf"), folder / "tiny.gguf", gguf.GGMLQuantizationType.Q8_0
    )


def test_it_is_what_the_library_reads(file: Path) -> None:
    ours, theirs = GgufHeader.read(file), gguf.GGUFReader(file)
    fields = {key: field for key, field in theirs.fields.items() if not key.startswith("GGUF.")}
    assert ours.metadata == {key: field.contents() for key, field in fields.items()}
    assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        assert np.array_equal(ours.tensors[tensor.name].dequantised(), values)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damage_of_any_kind_is_a_model_error(file: Path, data: st.DataObject) -> None:
    content = bytearray(file.read_bytes())
    broken = file.with_name("broken.gguf")
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + 8] = data.draw(st.binary(min_size=1, max_size=8))
    broken.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    with contextlib.suppress(ModelError):  # any other error fails
        GgufHeader.read(broken)


@pytest.mark.parametrize("change", [b"GGUX", b"GGUF\x01\x00\x00\x00", b""])
def test_another_kind_of_file_is_no_gguf_file(file: Path, change: bytes) -> None:
    broken = file.with_name("broken.gguf")
    broken.write_bytes(change and change + file.read_bytes()[len(change) :])
    with pytest.raises(ModelError, match="not a readable GGUF file"):
        GgufHeader.read(broken)


def test_what_cannot_be_served_is_refused_before_it_is_hashed(tmp_path: Path) -> None:
    big = tmp_path / "big.gguf"
    writer = gguf.GGUFWriter(big, "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with big.open("r+b") as opened:
        opened.truncate(40 * 10**9)  # a hole: nothing is stored
    told: list[str] = []
    with pytest.raises(ModelError, match="'mamba' is not supported"):
        prepare(
            ModelSettings(uri=f"file://{big}"),
            tmp_path / "cache",
            lambda stage, done, total: told.append(stage),
        )
    assert told == []


@pytest.mark.parametrize("kind", [0, 4, 7, 8, 12])
def test_an_array_is_counted_before_its_values_are_objects(tmp_path: Path, kind: int) -> None:
    """Also one whose values are there."""
    count, name = MAX_MEMBERS + 1, b"general.many"
    head = struct.pack(f"<4sIQQQ{len(name)}sIIQ", b"GGUF", 3, 0, 1, len(name), name, 9, kind, count)
    file = tmp_path / "many.gguf"
    with file.open("wb") as opened:
        opened.write(head)
        opened.truncate(len(head) + 8 * count)
    with pytest.raises(ModelError, match=f" members; at most {MAX_MEMBERS} are read"):
        GgufHeader.read(file)


def test_values_of_all_arrays_count_together(tmp_path: Path) -> None:
    half, file = MAX_MEMBERS // 2, tmp_path / "many.gguf"
    arrays = [
        struct.pack(f"<Q1sIIQ{half}B", 1, name, 9, 0, half, *bytes(half)) for name in (b"a", b"b")
    ]
    file.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, 2) + b"".join(arrays))
    with pytest.raises(ModelError, match=f" members; at most {MAX_MEMBERS} are read"):
        GgufHeader.read(file)
    file.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + arrays[0])
    assert len(GgufHeader.read(file).metadata["a"]) == half
