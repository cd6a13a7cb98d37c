"""What a worker is started with: one JSON file, written by a hand (operator or `outrider run`).

Knows nothing of YAML, Kubernetes or torch. An unknown key, a missing key or a value of the wrong
type is a `SettingsError` that names the key.
"""

import dataclasses
import enum
import json
import types
import typing
from typing import Any, Self

MOST_ROWS = 64
"""Most node rows of one sequence in one pass."""
MOST_DEPTH = 64
"""Longest path drafted."""
MOST_WIDTH = 64
"""Most leaves expanded in one draft pass."""
MOST_NODES_AHEAD = 512
"""Most live nodes that a draft may hold for one sequence."""


class SettingsError(ValueError):
    """A settings file that cannot be used; the message names the key and what is allowed."""


def _at_least(minimum: int, path: str, value: int) -> None:
    if value < minimum:
        raise SettingsError(f"{path}: {value} is not allowed; it must be {minimum} or more")


class Role(enum.StrEnum):
    """What a worker does."""

    TARGET = "target"
    DRAFT = "draft"


class Dtype(enum.StrEnum):
    """Numeric path of the weights; AUTO measures the machine once and remembers."""

    AUTO = "auto"
    FP32 = "fp32"
    BF16 = "bf16"
    INT8 = "int8"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettings:
    """The policy that a worker starts with; `Control.SetPolicy` replaces it."""

    version: int = 0
    """Rises with every change."""
    speculate: bool = True
    """False: plain decoding."""
    max_rows: int = 16
    """Ceiling of node rows of one sequence in one pass."""
    depth: int = 32
    """Longest path drafted."""
    width: int = 8
    """Leaves expanded in one draft pass."""
    nodes_ahead: int = 96
    """Live nodes that a draft may hold for one sequence."""
    off_below_percent: int = 105
    """Gain, in percent, under which a target stops drafting; 0: it never does."""
    on_above_percent: int = 115
    """Gain, in percent, that a probe must show for drafting to come back."""
    drafts: tuple[str, ...] = ()
    """Addresses (host:port) of drafts to pair with; targets only."""

    def __post_init__(self) -> None:
        for name in ("version", "max_rows", "depth", "width", "nodes_ahead"):
            _at_least(0, f"settings.policy.{name}", getattr(self, name))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Where weights come from and how they are held."""

    uri: str
    """`file://`, `hf://` or `package://`."""
    embeddings_from: str | None = None
    """URI of the model whose embedding a draft borrows."""
    dtype: Dtype = Dtype.AUTO
    """Numeric path of the weights."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Everything that one worker process needs to start."""

    role: Role
    """Target or draft."""
    name: str
    """Model name that requests use."""
    model: ModelSettings
    """This role's model."""
    listen: str = "127.0.0.1:0"
    """Address of the gRPC server; port 0 picks a free one."""
    threads: int = 1
    """Threads that the engine computes with."""
    processors: tuple[int, ...] = ()
    """Processors that those threads keep to; empty: any."""
    other_processors: tuple[int, ...] = ()
    """Processors that the rest of the worker keeps to: its server and its links; empty: any."""
    max_context: int | None = None
    """Most tokens of one sequence; None takes the model's own limit, at most 4096."""
    max_running: int = 1
    """Sequences (target) or sessions (draft) that hold KV at once."""
    max_waiting: int = 64
    """Requests that may wait; more are refused."""
    policy: PolicySettings = PolicySettings()
    """The policy to start with."""
    colocated: ModelSettings | None = None
    """Targets only: the draft's model, run inside this process instead of over a link."""
    cache: str | None = None
    """Folder for prepared models and measured facts; None takes `~/.cache/outrider`."""

    def __post_init__(self) -> None:
        for name in ("threads", "max_running"):
            _at_least(1, f"settings.{name}", getattr(self, name))
        _at_least(0, "settings.max_waiting", self.max_waiting)
        if self.max_context is not None:
            _at_least(2, "settings.max_context", self.max_context)
        if self.colocated is not None and self.role is not Role.TARGET:
            raise SettingsError("settings.colocated: only a target can hold a draft")

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parses one settings file; raises `SettingsError`."""
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            raise SettingsError(f"settings are not JSON: {error}") from None
        return typing.cast(Self, _parse(cls, value, "settings"))

    def to_json(self) -> str:
        """The text that `from_json` reads back to an equal object."""
        return json.dumps(dataclasses.asdict(self), indent=2)


def _parse(kind: Any, value: Any, path: str) -> Any:
    """Builds `kind` from plain JSON, refusing what does not fit."""
    if dataclasses.is_dataclass(kind):
        return _parse_dataclass(typing.cast(type, kind), value, path)
    if isinstance(kind, types.UnionType):
        members = typing.get_args(kind)
        if value is None and type(None) in members:
            return None
        return _parse(next(m for m in members if m is not type(None)), value, path)
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise SettingsError(f"{path}: expected a list, got {value!r}")
        item = typing.get_args(kind)[0]
        return tuple(_parse(item, v, f"{path}[{i}]") for i, v in enumerate(value))
    if issubclass(kind, enum.StrEnum):
        if value not in list(kind):
            raise SettingsError(f"{path}: {value!r} is not one of {', '.join(kind)}")
        return kind(value)
    if type(value) is not kind:
        raise SettingsError(f"{path}: expected {kind.__name__}, got {value!r}")
    return value


def _parse_dataclass(kind: type, value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise SettingsError(f"{path}: expected an object, got {value!r}")
    hints = typing.get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind)}
    for key in value:
        if key not in fields:
            raise SettingsError(f"{path}.{key}: unknown key; allowed: {', '.join(fields)}")
    for name, field in fields.items():
        if name not in value and field.default is dataclasses.MISSING:
            raise SettingsError(f"{path}.{name}: missing")
    return kind(**{k: _parse(hints[k], v, f"{path}.{k}") for k, v in value.items()})
