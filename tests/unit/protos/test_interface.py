"""Clients of an earlier build go on: .proto files only gain, and each kind of break is seen."""

from collections.abc import Callable

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)

from tests.unit.protos.interface import broken, facts, files, promised

PUBLIC = "outrider/protos/v1/inference.proto"


def inference() -> FileDescriptorProto:
    return next(file for file in files() if file.name == PUBLIC)


def message(file: FileDescriptorProto, name: str) -> DescriptorProto:
    return next(one for one in file.message_type if one.name == name)


def field(file: FileDescriptorProto, message_name: str, name: str) -> FieldDescriptorProto:
    return next(one for one in message(file, message_name).field if one.name == name)


def enum(file: FileDescriptorProto) -> EnumDescriptorProto:
    return next(one for one in file.enum_type if one.name == "FinishReason")


def service(file: FileDescriptorProto) -> ServiceDescriptorProto:
    return file.service[0]


def test_everything_that_was_promised_is_there() -> None:
    assert broken(files()) == set()


def test_everything_that_is_there_is_promised() -> None:
    now = {fact for file in files() for fact in facts(file)}
    assert now - promised() == set(), "run `python -m tests.unit.protos.interface`"


BREAKS: dict[str, tuple[Callable[[FileDescriptorProto], object], str]] = {
    "a field's number": (
        lambda file: setattr(field(file, "Model", "name"), "number", 99),
        "Model: optional TYPE_STRING name = 1",
    ),
    "a field's name": (
        lambda file: setattr(field(file, "Model", "name"), "name", "title"),
        "Model: optional TYPE_STRING name = 1",
    ),
    "a field's type": (
        lambda file: setattr(
            field(file, "Model", "context_length"), "type", FieldDescriptorProto.TYPE_SINT32
        ),
        "Model: optional TYPE_UINT32 context_length = 2",
    ),
    "a field's message": (
        lambda file: setattr(
            field(file, "GenerateResponse", "timing"), "type_name", ".outrider.protos.v1.Usage"
        ),
        "GenerateResponse: optional .outrider.protos.v1.Timing timing = 5",
    ),
    "a field's label": (
        lambda file: setattr(
            field(file, "TokenizeResponse", "ids"), "label", FieldDescriptorProto.LABEL_OPTIONAL
        ),
        "TokenizeResponse: repeated TYPE_UINT32 ids = 1",
    ),
    "a field's presence": (
        lambda file: field(file, "GenerateRequest", "max_tokens").ClearField("oneof_index"),
        "GenerateRequest: optional TYPE_UINT32 of _max_tokens max_tokens = 6",
    ),
    "a removed field": (
        lambda file: message(file, "TokenizeResponse").ClearField("field"),
        "TokenizeResponse: repeated TYPE_UINT32 ids = 1",
    ),
    "a removed message": (
        lambda file: file.message_type.remove(message(file, "ListModelsRequest")),
        "ListModelsRequest: message",
    ),
    "a value of an enum": (
        lambda file: setattr(enum(file).value[1], "number", 9),
        "FinishReason: FINISH_REASON_STOP = 1",
    ),
    "a removed value": (
        lambda file: enum(file).value.pop(),
        "FinishReason: FINISH_REASON_LENGTH = 2",
    ),
    "a removed call": (
        lambda file: service(file).method.pop(),
        "Inference: rpc ListModels(.outrider.protos.v1.ListModelsRequest) returns "
        "(.outrider.protos.v1.ListModelsResponse)",
    ),
    "a call's stream": (
        lambda file: setattr(service(file).method[0], "server_streaming", False),
        "Inference: rpc Generate(.outrider.protos.v1.GenerateRequest) returns "
        "(stream .outrider.protos.v1.GenerateResponse)",
    ),
}


@pytest.mark.parametrize("change", BREAKS)
def test_a_change_that_breaks_clients_is_refused(change: str) -> None:
    apply, promise = BREAKS[change]
    changed = inference()
    apply(changed)
    others = [file for file in files() if file.name != PUBLIC]
    assert broken([changed, *others]) == {f"outrider.protos.v1.{promise}"}


@pytest.mark.parametrize(
    "option", ["go_package", "java_package", "java_multiple_files", "the package"]
)
def test_the_names_of_stubs_are_promised(option: str) -> None:
    changed = inference()
    if option == "the package":
        changed.package = "outrider.v2"
    else:
        changed.options.ClearField(option)  # type: ignore[arg-type]
    assert broken([changed, *(file for file in files() if file.name != PUBLIC)])


def test_additions_break_nothing() -> None:
    changed = inference()
    message(changed, "Model").field.add(name="new", number=99, type="TYPE_STRING")
    enum(changed).value.add(name="FINISH_REASON_NEW", number=9)
    service(changed).method.add(name="New", input_type=".Model", output_type=".Model")
    changed.message_type.add(name="New")
    assert broken([changed, *(file for file in files() if file.name != PUBLIC)]) == set()
