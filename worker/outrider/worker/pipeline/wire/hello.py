"""Hello of the pipeline: who takes part in a group, and what is refused, with both values.

Pure: messages in, facts out. Leaves sending them to `stage_service` and `stage_client`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.contract.settings import SILENCE_MS, StageDtype
from outrider.protos.v1.internal import drafter_pb2
from outrider.protos.v1.internal import stage_pb2 as pb
from outrider.worker.errors import ProtocolViolation, StageRefused
from outrider.worker.link.payloads import parsed
from outrider.worker.link.records import VERSION
from outrider.worker.model.layer_range import LayerRange

MIN_SILENCE_MILLIS, MAX_SILENCE_MILLIS = SILENCE_MS
"""Least and greatest `silence_millis` of a Hello."""
SILENCE_MILLIS = 800
"""Silence after which a stream is dead, unless the leader says otherwise: a stage that stopped is
noticed within a second."""
LINKS = {False: "grpc", True: "distributed"}
FORMATS = {
    StageDtype.FP32: pb.HIDDEN_FORMAT_FP32,
    StageDtype.AUTO: pb.HIDDEN_FORMAT_FP32,
    StageDtype.BF16: pb.HIDDEN_FORMAT_BF16,
    StageDtype.FP16: pb.HIDDEN_FORMAT_FP16,
}


@dataclass(frozen=True, slots=True)
class Group:
    """One life of a pipeline, as its leader began it."""

    number: int
    """Random; the same in all its streams."""
    revision: str
    """Revision of the model: hash of weights, config and Outrider's version."""
    stages: int
    hidden_format: StageDtype = StageDtype.AUTO
    silence_millis: int = SILENCE_MILLIS
    distributed: bool = False
    """True where torch.distributed carries messages; streams carry Hello, liveness and reasons."""

    @property
    def silence(self) -> float:
        """Seconds."""
        return self.silence_millis / 1000


@dataclass(frozen=True, slots=True)
class StageFacts:
    """What one stage is."""

    stage: int
    """Number of the stage, from 0."""
    layers: LayerRange
    dtype: str
    blocks: int
    """Blocks of 64 KV slots."""
    rows: int
    """Most of one segment."""
    context: int
    """Most tokens of one sequence."""


@dataclass(frozen=True, slots=True)
class StageIdentity:
    """What one stage is, and what it wants of others."""

    revision: str
    stages: int
    facts: StageFacts
    hidden: int
    """Numbers of one hidden state."""
    vocabulary: int
    distributed: bool = False
    """As a group's: both sides have to name it."""

    @property
    def is_last(self) -> bool:
        return self.facts.stage == self.stages - 1

    def __str__(self) -> str:
        return f"stage {self.facts.stage} of {self.stages}"


def hello_to(
    group: Group, stage: int, first_layer: int, meeting: drafter_pb2.Rendezvous | None = None
) -> bytes:
    """Return the first message to a stage; `meeting`: where to join, in a distributed group."""
    hello = _hello(group, stage, first_layer)
    if meeting is not None:
        hello.rendezvous.CopyFrom(meeting)
    return pb.StageMessage(hello=hello).SerializeToString()


def meeting_of(payload: bytes) -> drafter_pb2.Rendezvous:
    """Return where the sender of an accepted Hello is to be joined, in a distributed group."""
    return _hello_of(payload).rendezvous


def accept_hello(own: StageIdentity, payload: bytes) -> Group:
    """Return the group of a Hello to this stage; raises `StageRefused` and `ProtocolViolation`."""
    hello = _hello_of(payload)
    facts = own.facts
    formats = {FORMATS[form]: form for form in (StageDtype.FP32, StageDtype.BF16, StageDtype.FP16)}
    if hello.hidden_format not in formats:
        raise StageRefused(f"{own}: hidden format {hello.hidden_format} is not known here")
    _require_versions(str(own), hello)
    _require(own, "model", hello.revision, own.revision)
    _require(own, "number of stages", hello.stages, own.stages)
    _require(own, "number", hello.stage, facts.stage)
    distributed = hello.HasField("rendezvous")
    _require(own, "link", LINKS[distributed], LINKS[own.distributed])
    _require(own, "first layer", hello.first_layer, facts.layers.first)
    if not MIN_SILENCE_MILLIS <= hello.silence_millis <= MAX_SILENCE_MILLIS:
        raise StageRefused(
            f"{own}: silence_millis: {hello.silence_millis} is not allowed; it must be "
            f"{MIN_SILENCE_MILLIS} to {MAX_SILENCE_MILLIS}"
        )
    return Group(
        hello.group,
        hello.revision,
        hello.stages,
        formats[hello.hidden_format],
        hello.silence_millis,
        distributed,
    )


def answer(own: StageIdentity, group: Group, behind: Sequence[StageFacts]) -> bytes:
    """Return this stage's Hello, with the facts of all `behind` it."""
    hello = _hello(group, own.facts.stage, own.facts.layers.first)
    hello.facts.extend(_facts(facts) for facts in (own.facts, *behind))
    return pb.StageMessage(hello=hello).SerializeToString()


def accept_answer(
    group: Group, stage: int, first_layer: int, payload: bytes
) -> tuple[StageFacts, ...]:
    """Return the facts of the stages from `stage` on, as it has answered.

    Raises `ProtocolViolation`, and `StageRefused` if they are not all, in order, up to the model's
    last layer, on one numeric path.
    """
    hello = _hello_of(payload)
    name = f"stage {stage}"
    _require_versions(name, hello)
    for what, theirs, ours in (
        ("model", hello.revision, group.revision),
        ("group", hello.group, group.number),
        ("number of stages", hello.stages, group.stages),
    ):
        if theirs != ours:
            raise StageRefused(f"{name}: its {what} is {theirs}, not {ours}")
    facts = tuple(_facts_from(message) for message in hello.facts)
    numbers = [f.stage for f in facts]
    if numbers != list(range(stage, group.stages)):
        raise StageRefused(f"{name}: it answers for stages {numbers}; there are {group.stages}")
    _check_layers(facts, first_layer)
    return facts


def _check_layers(facts: Sequence[StageFacts], first_layer: int) -> None:
    expected = first_layer
    for each in facts:
        name = f"stage {each.stage}"
        if each.layers.first != expected:
            raise StageRefused(f"{name}: its first layer is {each.layers.first}, not {expected}")
        if each.layers.of != facts[0].layers.of:
            raise StageRefused(f"{name}: {each.layers}; others have {facts[0].layers.of}")
        if each.dtype != facts[0].dtype:
            raise StageRefused(
                f"{name}: its weights are {each.dtype}, those of stage {facts[0].stage} "
                f"{facts[0].dtype}"
            )
        expected = each.layers.last
    if expected != facts[-1].layers.of:
        raise StageRefused(f"the last stage ends with layer {expected} of {facts[-1].layers.of}")


def _hello(group: Group, stage: int, first_layer: int) -> pb.StageHello:
    return pb.StageHello(
        protocol_min=VERSION,
        protocol_max=VERSION,
        revision=group.revision,
        group=group.number,
        stages=group.stages,
        stage=stage,
        first_layer=first_layer,
        hidden_format=FORMATS[group.hidden_format],
        silence_millis=group.silence_millis,
    )


def _hello_of(payload: bytes) -> pb.StageHello:
    message = parsed(pb.StageMessage, payload)
    if message.WhichOneof("body") != "hello":
        raise ProtocolViolation(f"{message.WhichOneof('body')} came before Hello")
    return message.hello


def _require_versions(name: str, hello: pb.StageHello) -> None:
    if not hello.protocol_min <= VERSION <= hello.protocol_max:
        raise StageRefused(
            f"{name}: protocol versions {hello.protocol_min} to {hello.protocol_max} are spoken "
            f"there, {VERSION} here"
        )


def _require(own: StageIdentity, what: str, theirs: object, ours: object) -> None:
    if theirs != ours:
        raise StageRefused(f"{own}: its {what} is {ours}, not {theirs}")


def _facts(facts: StageFacts) -> pb.StageFacts:
    return pb.StageFacts(
        stage=facts.stage,
        first_layer=facts.layers.first,
        layers=facts.layers.count,
        of_layers=facts.layers.of,
        dtype=facts.dtype,
        blocks=facts.blocks,
        rows=facts.rows,
        context=facts.context,
    )


def _facts_from(m: pb.StageFacts) -> StageFacts:
    try:
        layers = LayerRange(m.first_layer, m.first_layer + m.layers, m.of_layers)
    except ValueError as error:
        raise StageRefused(f"stage {m.stage}: {error}") from None
    return StageFacts(m.stage, layers, m.dtype, m.blocks, m.rows, m.context)
