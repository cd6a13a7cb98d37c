"""The checked-in stubs are what the .proto files say, and the .proto files explain themselves."""

from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

from protos.generate import ROOT, generate

PROTOS = sorted(ROOT.rglob("*.proto"))


def test_regenerated_stubs_equal_the_checked_in_ones(tmp_path: Path) -> None:
    generate(tmp_path)
    written = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*_pb2*.py*")}
    checked_in = {p.relative_to(ROOT): p.read_bytes() for p in ROOT.rglob("*_pb2*.py*")}
    checked_in = {p: b for p, b in checked_in.items() if p.suffix in (".py", ".pyi")}
    assert written.keys() == checked_in.keys()
    assert [str(p) for p in written if written[p] != checked_in[p]] == [], "run `make proto`"


@pytest.mark.parametrize("proto", PROTOS, ids=lambda p: p.name)
def test_everything_in_a_proto_file_has_a_comment(proto: Path, tmp_path: Path) -> None:
    file = describe(proto, tmp_path)
    commented = {tuple(at.path) for at in file.source_code_info.location if at.leading_comments}
    assert [name for path, name in elements(file) if path not in commented] == []


def describe(proto: Path, folder: Path) -> descriptor_pb2.FileDescriptorProto:
    """The file's descriptor with its comments."""
    out = folder / "descriptors"
    well_known = resources.files("grpc_tools") / "_proto"
    arguments = [f"--proto_path={ROOT}", f"--proto_path={well_known}", "--include_source_info"]
    assert protoc.main(["protoc", *arguments, f"--descriptor_set_out={out}", str(proto)]) == 0
    return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file[0]


DescriptorPath = tuple[int, ...]


def elements(file: descriptor_pb2.FileDescriptorProto) -> Iterator[tuple[DescriptorPath, str]]:
    """Descriptor path and name of all that must be explained; numbers are descriptor.proto's."""
    for i, service in enumerate(file.service):
        yield (6, i), service.name
        for j, method in enumerate(service.method):
            yield (6, i, 2, j), f"{service.name}.{method.name}"
    for i, enum in enumerate(file.enum_type):
        yield from enum_elements((5, i), enum)
    for i, message in enumerate(file.message_type):
        yield from message_elements((4, i), message)


def message_elements(
    path: DescriptorPath, message: descriptor_pb2.DescriptorProto
) -> Iterator[tuple[DescriptorPath, str]]:
    if message.options.map_entry:  # made by protoc for a map field
        return
    yield path, message.name
    for i, field in enumerate(message.field):
        yield (*path, 2, i), f"{message.name}.{field.name}"
    for i, oneof in enumerate(message.oneof_decl):
        if not oneof.name.startswith("_"):  # made by protoc for an optional field
            yield (*path, 8, i), f"{message.name}.{oneof.name}"
    for i, enum in enumerate(message.enum_type):
        yield from enum_elements((*path, 4, i), enum)
    for i, nested in enumerate(message.nested_type):
        yield from message_elements((*path, 3, i), nested)


def enum_elements(
    path: DescriptorPath, enum: descriptor_pb2.EnumDescriptorProto
) -> Iterator[tuple[DescriptorPath, str]]:
    yield path, enum.name
    for i, value in enumerate(enum.value):
        yield (*path, 2, i), f"{enum.name}.{value.name}"
