"""Settings that a worker is started with: one JSON file, written by the operator or `outrider run`.

Knows nothing of YAML, Kubernetes or torch. An unknown key, a missing key, a value of the wrong type
or one out of its range is a `SettingsError` that names the key.
"""

import dataclasses
import enum
import json
import types
import typing
from typing import Any, Self

from outrider.contract.addresses import address_problem, allowed_host_problem, is_loopback
from outrider.contract.sources import SourceKind, source_problem

MAX_NODE_ROWS = 64
"""Most node rows of one sequence in one pass."""
MAX_DEPTH = 64
"""Longest path drafted."""
MAX_WIDTH = 64
"""Most leaves expanded in one draft pass."""
MAX_NODES_AHEAD = 512
"""Most live nodes that a draft may hold for one sequence."""
MAX_GAIN_PERCENT = 1000
"""Highest gain that a switch may ask for."""
MAX_THREADS = 1024
"""More than the processors of any machine that this was written for."""
MAX_DRAFT_THREADS = 4
"""More make the passes of a small model no shorter: its layers are too short to share."""
MIN_CONTEXT = 64
"""Tokens that a KV region holds at least; a worker's rehearsal at start-up needs 35 of them."""
MAX_CONTEXT = 1 << 20
"""Most tokens of one sequence."""
MAX_RUNNING = 1024
"""Most sequences or sessions of one worker."""
MAX_KV_BYTES = 1 << 46
"""More than any machine has."""
MAX_RANKS = 64
"""Ranks of one model."""
MAX_STAGES = 8
"""Stages of one target."""
SILENCE_MS = (100, 600_000)
"""Range of the silence between stages: less is no time for a busy machine, more is no use."""
MAX_LAYERS = 1024
"""More layers than any model of today has."""
MAX_QUEUE_SECONDS = 86_400
"""A day."""
MAX_LINK_SECONDS = 3600
"""An hour."""
MAX_WAITING = 1 << 16
"""Most requests that may wait; each keeps its stream open."""
MAX_REQUEST_SECONDS = 86_400
"""A day."""
STREAM_INTERVAL_MS = 16
"""Default interval between messages of a stream: tokens that come faster than a screen is refreshed
travel together. A message costs server and client about 0.5 and 0.3 ms of processor time whatever
its size (Zen 5, grpcio 1.85), and each pass waits for the thread whose processor they take. Plain
decoding of the demo on two processors: 3.78 ms a token."""
MAX_STREAM_INTERVAL_MS = 1000
"""Longest interval between messages of a stream, also of answers that nobody reads before their
end: so often, the server's metrics and a client that is cut off learn what has come. Plain decoding
of the demo on two processors: 3.38 ms a token."""
MAX_LAME_DUCK_SECONDS = 3600
"""An hour."""
MAX_GRACE_SECONDS = MAX_LAME_DUCK_SECONDS + MAX_REQUEST_SECONDS
"""Time for the longest request that begins in the longest lame-duck time."""

MAX_POLICY_VERSION = (1 << 53) - 1
"""Any reader of JSON has such a number exactly."""
MAX_VERSION_STEP = 1 << 32
"""Most by which a policy's version may be above the one before it: changes of ages, and far too
little to leave no room for later ones."""
CERTIFICATE, KEY, AUTHORITIES = "tls.crt", "tls.key", "ca.crt"
"""Files of a folder of certificates: the own one, its private key, whose signatures count."""
POLICY_RANGES = {
    "version": (0, MAX_POLICY_VERSION),
    "max_rows": (1, MAX_NODE_ROWS),
    "depth": (1, MAX_DEPTH),
    "width": (1, MAX_WIDTH),
    "nodes_ahead": (1, MAX_NODES_AHEAD),
    "off_below_percent": (0, MAX_GAIN_PERCENT),
    "on_above_percent": (0, MAX_GAIN_PERCENT),
}
"""Smallest and largest value of each number of a policy."""


class SettingsError(ValueError):
    """A settings file that cannot be used; the message names the key and what is allowed."""


def _within(least: int, most: int, path: str, value: int) -> None:
    if not least <= value <= most:
        raise SettingsError(f"{path}: {value} is not allowed; it must be {least} to {most}")


class Role(enum.StrEnum):
    """Role of a worker."""

    TARGET = "target"
    DRAFT = "draft"


class Device(enum.StrEnum):
    """Device that a model runs on; AUTO takes a GPU where there is one."""

    AUTO = "auto"
    CPU = "cpu"
    GPU = "gpu"


class Dtype(enum.StrEnum):
    """Numeric type of the weights; AUTO goes by the processor and, where that does not decide,
    by measuring once; on a GPU it is BF16, with matrices as the model's files have them where
    kernels take them.

    INT8 and INT4 are for CPUs, FP8 (e4m3, one scale an output) for GPUs alone. INT4 keeps quants of
    a model's file as they are, and AUTO takes it for these; it never takes FP8.
    """

    AUTO = "auto"
    FP32 = "fp32"
    BF16 = "bf16"
    INT8 = "int8"
    INT4 = "int4"
    FP8 = "fp8"


class AllReduceKind(enum.StrEnum):
    """How the ranks of a model on GPUs add up their parts after each half layer.

    GATHER gathers them by NCCL, and a kernel adds them. ONE_SHOT sends them by flag words into
    memory that the GPUs of one machine map from each other, and adds them in the same launch; FUSED
    does so in the launch of the product before. Neither has run on two GPUs yet.
    """

    GATHER = "gather"
    ONE_SHOT = "one_shot"
    FUSED = "fused"


class PrefillKind(enum.StrEnum):
    """What computes the linear layers of prompts on a GPU.

    EXACT: the kernels that compute answers. LIBRARY: the vendor's library, which reads weights once
    for 128 rows and not for 64 or fewer; no device has measured it yet. Texts of the two differ, as
    sums are rounded otherwise.
    """

    EXACT = "exact"
    LIBRARY = "library"


class OffloadKind(enum.StrEnum):
    """When the memory of a draft inside its target may be lent to the target's KV.

    AUTO: on a CPU. ALWAYS: also on a GPU, where no device has tried it yet, and where a worker that
    cannot lend ends with the reason.
    """

    AUTO = "auto"
    NEVER = "never"
    ALWAYS = "always"


class StageDtype(enum.StrEnum):
    """Numbers of the hidden vectors that travel between the stages of a pipelined target.

    AUTO sends them as the stages compute them, so that no bit is lost.
    """

    AUTO = "auto"
    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"


class StageLink(enum.StrEnum):
    """What carries the records between the stages of a pipelined target, once Hello has passed.

    DISTRIBUTED is torch.distributed with gloo, for a second network; stages must trust each other.
    """

    GRPC = "grpc"
    DISTRIBUTED = "distributed"


class LinkTransport(enum.StrEnum):
    """What carries the messages between a target and a draft, once both have said Hello.

    AUTO takes shared memory where both ends see the same `link_dir`, else gRPC; never DISTRIBUTED,
    which is torch.distributed with gloo, and which both ends must name. A kind that is named and
    cannot be had is refused: by the settings, or by one of the two at Hello.
    """

    AUTO = "auto"
    SHARED_MEMORY = "shared_memory"
    DISTRIBUTED = "distributed"
    GRPC = "grpc"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettings:
    """The policy that a worker starts with; `Control.SetPolicy` replaces it."""

    version: int = 0
    """Rises with every change, by at most 2^32; at most 2^53 - 1."""
    speculate: bool = True
    """False: plain decoding."""
    max_rows: int = 16
    """Ceiling of node rows of one sequence in one pass; 1 to 64."""
    depth: int = 32
    """Longest path drafted; 1 to 64."""
    width: int = 8
    """Leaves expanded in one draft pass; 1 to 64."""
    nodes_ahead: int = 96
    """Live nodes that a draft may hold for one sequence; 1 to 512."""
    off_below_percent: int = 105
    """Gain, in percent, under which a target stops drafting; at most 1000, 0: never."""
    on_above_percent: int = 115
    """Gain, in percent, that a probe must show for drafting to come back; at most 1000."""
    drafts: tuple[str, ...] = ()
    """Addresses (host:port) of drafts to pair with, each once, at most 1024; targets only."""
    sources: tuple[SourceKind, ...] = (SourceKind.DRAFT,)
    """What may propose draft tokens, one or more: `draft`, `suffix` and `answers`; a service has
    the first two unless it says otherwise."""

    @property
    def drafts_allowed(self) -> bool:
        """True unless the policy wants decoding without drafts."""
        return self.speculate and SourceKind.DRAFT in self.sources

    @property
    def local_sources(self) -> tuple[SourceKind, ...]:
        """Sources in use that need no draft."""
        if not self.speculate:
            return ()
        return tuple(kind for kind in self.sources if kind is not SourceKind.DRAFT)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse a policy that stands alone; raises `SettingsError`."""
        policy = _from_json(cls, text, "policy")
        policy.check("policy")
        return policy

    def to_json(self) -> str:
        """The text that `from_json` reads back to an equal object."""
        return json.dumps(dataclasses.asdict(self), indent=2)

    def check(self, path: str) -> None:
        """Raise `SettingsError` for a number out of its range."""
        for name, (least, most) in POLICY_RANGES.items():
            _within(least, most, f"{path}.{name}", getattr(self, name))
        if problem := source_problem(self.sources):
            raise SettingsError(f"{path}.sources: {problem}")
        if wrong := address_problem(self.drafts):
            raise SettingsError(f"{path}.drafts: {wrong}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Where weights come from and how they are held."""

    uri: str
    """`file://`, `hf://` or `package://`."""
    embeddings_from: str | None = None
    """URI of the model whose embedding a draft borrows."""
    dtype: Dtype = Dtype.AUTO
    """Numeric type of the weights."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PeerSettings:
    """One worker's certificate, and the DNS names that those of its peers hold."""

    folder: str
    """Folder with `tls.crt`, `tls.key` and `ca.crt`, in PEM; read again for each new connection."""
    target: str
    """Name in the certificates of targets, stages among them."""
    draft: str
    """Name in the certificates of drafts."""
    operator: str
    """Name in the certificate of who calls `Control`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    """The stages that the layers of a target's own model are cut over."""

    stages: int = 1
    """Stages, of `tensor_parallel` ranks each; 1 to 8, at most one a layer. 1: nothing is cut."""
    cut: tuple[int, ...] = ()
    """Layers of each stage, in their order; empty: cut by measured times where the first stage's
    worker starts all others, else by the weights that each part reads."""
    dtype: StageDtype = StageDtype.AUTO
    """Numbers of the hidden vectors between stages: `fp32`, `bf16`, `fp16`, or `auto`."""
    link: StageLink = StageLink.GRPC
    """What carries the records between stages: `grpc` or `distributed`."""
    silence_ms: int = 800
    """Milliseconds of silence after which a stage, or the way to it, counts as lost; 100 to
    600000."""

    def check(self, path: str) -> None:
        """Raise `SettingsError` for a value that fits no model."""
        _within(1, MAX_STAGES, f"{path}.stages", self.stages)
        if self.cut and len(self.cut) != self.stages:
            raise SettingsError(
                f"{path}.cut: {len(self.cut)} numbers are not allowed; "
                f"{path}.stages is {self.stages}"
            )
        _within(*SILENCE_MS, f"{path}.silence_ms", self.silence_ms)
        for number, layers in enumerate(self.cut):
            _within(1, MAX_LAYERS, f"{path}.cut[{number}]", layers)

    def check_layers(self, layers: int, path: str = "settings.pipeline") -> None:
        """Raise `SettingsError` for stages that a model of so many layers cannot be cut over."""
        if self.stages > layers:
            raise SettingsError(
                f"{path}.stages: {self.stages} is not allowed; the model has {layers} layers"
            )
        if self.cut and sum(self.cut) != layers:
            words = " + ".join(map(str, self.cut))
            raise SettingsError(
                f"{path}.cut: {words} = {sum(self.cut)} layers are not allowed; "
                f"the model has {layers}"
            )


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
    control_listen: str = ""
    """Address (host:port) of a gRPC server of its own for `Control`, which whoever runs the worker
    calls; empty: it is at `listen`, which then has to be on loopback."""
    http_listen: str = ""
    """Address (host:port) of the HTTP server: `/healthz`, `/readyz`, `/metrics` and, for targets,
    the OpenAI-compatible API; empty: none."""
    request_seconds: int = 570
    """Longest time for a request that names no deadline of its own; 1 to 86400."""
    guarded: bool = False
    """Whether who runs the worker answers for who reaches its ports, as the operator does in a
    cluster: where it keeps nobody out, the service's advice says so. Else the worker listens beyond
    loopback only as a target with `api_keys_file` and `tls_cert`."""
    allowed_hosts: tuple[str, ...] = ()
    """Targets only: hosts, and origins (`app://obsidian.md`, `vscode-webview://*`), whose web pages
    may read answers, as pages of localhost may; `*` allows all. Where `http_listen` is on loopback
    and there is no `api_keys_file`, no other page may ask, and `Host` is one of the hosts,
    localhost or an IP address: a proxy that hands on the name by which it was asked needs it
    here."""
    api_keys_file: str | None = None
    """Targets only: a file with one key a line; requests must bring one of them. It is read again
    whenever it has changed; while it cannot be read, or holds none, nobody is let in."""
    tls_cert: str | None = None
    """Targets only: a PEM file of certificates; both servers then speak TLS. It and its key are
    read again for each connection; half of a pair is not shown."""
    tls_key: str | None = None
    """A PEM file with the private key of `tls_cert`."""
    peers: PeerSettings | None = None
    """Certificates by which the service's workers and who runs them know each other: beyond
    loopback, `Control`, links and stages then take nobody else. None: they take all."""
    device: Device = Device.AUTO
    """What the worker's models run on: `cpu`, `gpu` (one for each rank), or `auto`."""
    threads: int = 1
    """Threads that the engine, or each rank of it, computes with; 1 to 1024."""
    tensor_parallel: int = 1
    """Ranks, processes with `threads` threads each, that share the role's own model; 1 to 64."""
    all_reduce: AllReduceKind = AllReduceKind.GATHER
    """How ranks on GPUs add up: `gather`, or, between the GPUs of one machine, `one_shot` or
    `fused`."""
    prefill: PrefillKind = PrefillKind.EXACT
    """Targets only: what computes prompts, `exact` or, on a GPU, `library`."""
    pipeline: PipelineSettings = PipelineSettings()
    """Targets only: the stages that the layers are cut over."""
    processors: tuple[int, ...] = ()
    """Processors that the threads of all ranks keep to, each rank to its own if there are enough;
    empty: any."""
    other_processors: tuple[int, ...] = ()
    """Processors that the rest of the worker keeps to: its server, its links and, in front of
    stages, its engine; empty: any."""
    max_context: int | None = None
    """Most tokens of one sequence, 64 to 2^20; None takes the model's own limit, at most 4096."""
    max_running: int = 1
    """Sequences (target) or sessions (draft) that hold KV at once; 1 to 1024."""
    max_waiting: int = 64
    """Requests that may wait, at most 65536; more are refused."""
    queue_seconds: int = 60
    """Longest that a request waits for its first step, 1 to 86400; then it ends unrun."""
    cut_max_tokens: bool = True
    """Targets only: whether a chat that asks for more tokens than the context has room for gets
    those that it has; else it is refused."""
    lame_duck_seconds: int = 0
    """How long a worker that is to stop, and says that it is not ready, takes new work all the
    same: those who send it learn of that late; at most 3600."""
    grace_seconds: int = 10
    """Longest time from a signal to stop to the end, the lame-duck time included, in which what
    runs may finish; at most 90000."""
    link_seconds: int = 0
    """Targets only: how long one that starts with drafts in its policy says that it is not ready
    while no link has come up or been refused; at most 3600. It answers requests all the same."""
    link: LinkTransport = LinkTransport.AUTO
    """What carries the messages of its links: `shared_memory`, `distributed`, `grpc`, or `auto`."""
    link_dir: str | None = None
    """Folder that targets and drafts of one machine both see, in which they meet to share memory: a
    draft listens there, at a socket of its own. It holds no data. None: no memory is shared."""
    kv_bytes: int | None = None
    """Memory for keys and values, of all ranks together, at least one sequence's; of a pipeline
    stage, for its own layers; of a target with a colocated draft on a CPU, for the draft's weights
    and its KV, too. None: room for `max_running` sequences of the longest context, but no
    more than 2 GiB unless one needs it; on a GPU 80 percent of the memory that is free beside the
    weights (40 with a colocated draft)."""
    prefix_cache: bool = True
    """Whether KV of prompts and answers is kept for later requests that begin alike."""
    policy: PolicySettings = PolicySettings()
    """The policy to start with."""
    colocated: ModelSettings | None = None
    """Targets only: the draft's model, run inside this process (of the leading rank, if there are
    several) instead of over a link."""
    offload_draft: OffloadKind = OffloadKind.AUTO
    """When the memory of `colocated` may be lent to the target's KV."""
    await_arrangement: bool = False
    """Whether the worker loads its models, times them as it is asked to (`Control.Measure`), and
    serves only when it is told how (`Control.Arrange`); not with several ranks or stages."""
    cache: str | None = None
    """Folder for prepared models and measured facts; None takes the user's cache."""

    def __post_init__(self) -> None:
        _within(1, MAX_THREADS, "settings.threads", self.threads)
        _within(1, MAX_RANKS, "settings.tensor_parallel", self.tensor_parallel)
        _within(1, MAX_RUNNING, "settings.max_running", self.max_running)
        _within(0, MAX_WAITING, "settings.max_waiting", self.max_waiting)
        _within(1, MAX_QUEUE_SECONDS, "settings.queue_seconds", self.queue_seconds)
        _within(0, MAX_LINK_SECONDS, "settings.link_seconds", self.link_seconds)
        lame_duck = "settings.lame_duck_seconds"
        _within(0, MAX_LAME_DUCK_SECONDS, lame_duck, self.lame_duck_seconds)
        _within(0, MAX_GRACE_SECONDS, "settings.grace_seconds", self.grace_seconds)
        if self.kv_bytes is not None:
            _within(1, MAX_KV_BYTES, "settings.kv_bytes", self.kv_bytes)
        _within(1, MAX_REQUEST_SECONDS, "settings.request_seconds", self.request_seconds)
        self._check_servers()
        if self.max_context is not None:
            _within(MIN_CONTEXT, MAX_CONTEXT, "settings.max_context", self.max_context)
        self.policy.check("settings.policy")
        self.pipeline.check("settings.pipeline")
        if self.pipeline.stages > 1 and self.role is not Role.TARGET:
            raise SettingsError("settings.pipeline.stages: only a target is cut over stages")
        if self.prefill is PrefillKind.LIBRARY:
            self._check_library()
        if self.colocated is not None and self.role is not Role.TARGET:
            raise SettingsError("settings.colocated: only a target can hold a draft")
        if self.colocated is not None and self.pipeline.stages > 1:
            raise SettingsError(
                "settings.colocated: not allowed where settings.pipeline.stages is more than 1: "
                "the draft is a process of its own"
            )
        if self.await_arrangement and self.ranks > 1:
            raise SettingsError("settings.await_arrangement: not allowed with ranks or stages")

    def for_colocated_draft(self) -> Self:
        """The same for a draft inside its target: it is not cut, and computes with its target's
        threads, which wait for it anyway.

        With two threads instead of one the demo's pair takes 2.85 for 3.00 ms a token with one
        draft pass a root, 3.04 for 3.36 with two (Zen 5, two processors, int8, means of four).
        """
        threads = min(self.threads, MAX_DRAFT_THREADS)
        return dataclasses.replace(self.on_one_rank(), threads=threads)

    def on_one_rank(self) -> Self:
        """The same for a model that is not cut."""
        return dataclasses.replace(
            self,
            tensor_parallel=1,
            all_reduce=AllReduceKind.GATHER,
            pipeline=PipelineSettings(),
        )

    @property
    def ranks(self) -> int:
        """Processes that compute its model, over all stages."""
        return self.tensor_parallel * self.pipeline.stages

    @property
    def has_draft(self) -> bool:
        """True for a draft, and for a target with one inside."""
        return self.role is Role.DRAFT or self.colocated is not None

    @property
    def addresses(self) -> str:
        """Where its servers listen, in words."""
        return " and ".join(filter(None, (self.listen, self.control_listen, self.http_listen)))

    def _check_library(self) -> None:
        cut = self.pipeline.stages > 1
        if cut or self.role is not Role.TARGET or self.device is Device.CPU:
            raise SettingsError(
                "settings.prefill: library is for a target on a GPU that is not cut over stages; "
                "allowed here: exact"
            )

    def _check_servers(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise SettingsError("settings.tls_cert, settings.tls_key: one needs the other")
        for host in self.allowed_hosts:
            if problem := allowed_host_problem(host):
                raise SettingsError(f"settings.allowed_hosts: {problem}")
        for name in ("api_keys_file", "tls_cert", "allowed_hosts"):
            if getattr(self, name) and self.role is not Role.TARGET:
                raise SettingsError(f"settings.{name}: only a target answers requests")
        self._check_doors()

    def _check_doors(self) -> None:
        """Refuse servers that strangers could reach."""
        if not self.control_listen and not is_loopback(self.listen):
            raise SettingsError(
                f"settings.control_listen: missing, and settings.listen is {self.listen}: Control "
                "is not for clients, and has an address of its own unless both are on loopback"
            )
        locked = self.api_keys_file is not None and self.tls_cert is not None
        for name in ("listen", "http_listen", "control_listen"):
            address = getattr(self, name)
            if not address or is_loopback(address) or self.guarded:
                continue
            if name == "control_listen" or not locked:
                raise SettingsError(
                    f"settings.{name}: {address} is not on loopback; allowed: for a target's "
                    "listen and http_listen with settings.api_keys_file and settings.tls_cert, "
                    "and where settings.guarded says that the ports are guarded"
                )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse one settings file; raises `SettingsError`."""
        return _from_json(cls, text, "settings")

    def to_json(self) -> str:
        """The text that `from_json` reads back to an equal object."""
        return json.dumps(dataclasses.asdict(self), indent=2)


Kind = typing.TypeVar("Kind")


def _from_json(kind: type[Kind], text: str, path: str) -> Kind:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise SettingsError(f"{path}: not JSON: {error}") from None
    return typing.cast(Kind, _parse(kind, value, path))


def _parse(kind: Any, value: Any, path: str) -> Any:
    """Build `kind` from plain JSON; refuse what does not fit."""
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
