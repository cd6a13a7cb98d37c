"""The interface that the .proto files promise, a line for each fact.

`interface.txt` holds the lines of earlier builds, so a changed name, number, type or label is a
missing line. `python -m tests.unit.protos.interface` adds new lines. A line of an internal file may
be deleted by hand, one of inference.proto never.
"""

from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
)

from outrider.protos.v1 import inference_pb2
from outrider.protos.v1.internal import control_pb2, drafter_pb2, stage_pb2

PROMISED = Path(__file__).parent / "interface.txt"
MODULES = (inference_pb2, control_pb2, drafter_pb2, stage_pb2)


def files() -> list[FileDescriptorProto]:
    """The descriptors of all .proto files, which their stubs hold."""
    return [FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb) for module in MODULES]


def facts(file: FileDescriptorProto) -> Iterator[str]:
    """Each fact of a file that stubs or bytes depend on."""
    for option, value in file.options.ListFields():
        yield f"{file.name}: {option.name} = {value}"
    for service in file.service:
        for method in service.method:
            yield f"{file.package}.{service.name}: {call(method)}"
    for enum in file.enum_type:
        yield from values(file.package, enum)
    for message in file.message_type:
        yield from fields(file.package, message)


def call(method: MethodDescriptorProto) -> str:
    sent = "stream " * method.client_streaming + method.input_type
    answered = "stream " * method.server_streaming + method.output_type
    return f"rpc {method.name}({sent}) returns ({answered})"


def values(scope: str, enum: EnumDescriptorProto) -> Iterator[str]:
    for value in enum.value:
        yield f"{scope}.{enum.name}: {value.name} = {value.number}"


def fields(scope: str, message: DescriptorProto) -> Iterator[str]:
    name = f"{scope}.{message.name}"
    yield f"{name}: {'map entry' if message.options.map_entry else 'message'}"
    for field in message.field:
        yield f"{name}: {kind(message, field)} {field.name} = {field.number}"
    for enum in message.enum_type:
        yield from values(name, enum)
    for nested in message.nested_type:
        yield from fields(name, nested)


def kind(message: DescriptorProto, field: FieldDescriptorProto) -> str:
    """Label, type and oneof of a field."""
    label = FieldDescriptorProto.Label.Name(field.label).removeprefix("LABEL_").lower()
    kind = field.type_name or FieldDescriptorProto.Type.Name(field.type)
    if not field.HasField("oneof_index"):
        return f"{label} {kind}"
    return f"{label} {kind} of {message.oneof_decl[field.oneof_index].name}"


def promised() -> set[str]:
    """The lines that are kept."""
    return set(PROMISED.read_text(encoding="utf-8").splitlines())


def broken(changed: list[FileDescriptorProto]) -> set[str]:
    """The promised lines that no longer hold."""
    return promised() - {fact for file in changed for fact in facts(file)}


if __name__ == "__main__":
    now = {fact for file in files() for fact in facts(file)}
    PROMISED.write_text("\n".join(sorted(promised() | now)) + "\n", encoding="utf-8")
