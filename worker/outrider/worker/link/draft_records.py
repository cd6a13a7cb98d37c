"""Records of the link between a target and a draft: the bodies of its messages.

`FROM_TARGET` and `FROM_DRAFT` are what each side may send; docs/reference/protocol.md has a table
of each body.
"""

import struct

import numpy as np

from outrider.worker.link.records import Body, RecordKind, RecordKinds, sampling_bytes
from outrider.worker.link.wire import Capacity, Close, CloseReason, Commit, Grow, Limits, Open
from outrider.worker.tree.growth import Growth

_OPEN = struct.Struct("<QIII")
"""Fields of an Open: session, prompt, tokens, bytes of the traceparent; then limits, sampling,
tokens, traceparent."""
_COMMIT = struct.Struct("<QII")
"""Fields of a Commit: session, position, tokens; then tokens i32."""
_LIMITS = struct.Struct("<QIIIIf")
LIMITS_FIELDS = ("session", "depth", "width", "nodes_ahead", "link_lag_micros", "error_scale")
_CLOSE = struct.Struct("<QII")
"""Fields of a Close: session, reason, bytes of the detail; then the detail."""
_GROW = struct.Struct("<QIIq")
"""Fields of a Grow: session, root_position, nodes, first_id; then parents i64, tokens i32, logprobs
f32 [nodes]."""
_CAPACITY = struct.Struct("<QQ")
"""Fields of a Capacity: sessions, tokens."""
NODE_BYTES = 16
REASONS = {reason.value: reason for reason in CloseReason}


def _open(message: Open) -> bytes:
    traceparent = message.traceparent.encode()
    tokens = message.tokens
    head = _OPEN.pack(message.session, message.prompt, len(tokens), len(traceparent))
    settings = _limits(message.limits) + sampling_bytes(message.sampling)
    return head + settings + tokens.tobytes() + traceparent


def _open_from(body: Body) -> Open:
    session, prompt, count, length = body.numbers(_OPEN)
    limits, sampling = _limits_from(body), body.sampling()
    tokens = body.array(np.int32, count)
    return Open(session, tokens, sampling, limits, prompt, body.text(length))


def _commit(message: Commit) -> bytes:
    tokens = message.tokens
    return _COMMIT.pack(message.session, message.position, len(tokens)) + tokens.tobytes()


def _commit_from(body: Body) -> Commit:
    session, position, count = body.numbers(_COMMIT)
    return Commit(session, position, body.array(np.int32, count))


def _limits(limits: Limits) -> bytes:
    return _LIMITS.pack(*(getattr(limits, name) for name in LIMITS_FIELDS))


def _limits_from(body: Body) -> Limits:
    return Limits(**dict(zip(LIMITS_FIELDS, body.numbers(_LIMITS), strict=True)))


def _close(message: Close) -> bytes:
    detail = message.detail.encode()
    return _CLOSE.pack(message.session, message.reason.value, len(detail)) + detail


def _close_from(body: Body) -> Close:
    session, reason, length = body.numbers(_CLOSE)
    return Close(session, REASONS.get(reason, CloseReason.INVALID), body.text(length))


def _grow(message: Grow) -> bytes:
    root_position, first_id, parents, tokens, logprobs = message.growth
    head = _GROW.pack(message.session, root_position, len(tokens), first_id)
    return head + parents.tobytes() + tokens.tobytes() + logprobs.tobytes()


def _grow_from(body: Body) -> Grow:
    session, root_position, count, first_id = body.numbers(_GROW)
    parents = body.array(np.int64, count, 8)
    tokens, logprobs = body.array(np.int32, count), body.array(np.float32, count)
    return Grow(session, Growth(root_position, first_id, parents, tokens, logprobs))


def _capacity(message: Capacity) -> bytes:
    return _CAPACITY.pack(message.sessions, message.tokens)


def _capacity_from(body: Body) -> Capacity:
    return Capacity(*body.numbers(_CAPACITY))


OPEN = RecordKind(1, Open, _open, _open_from)
COMMIT = RecordKind(2, Commit, _commit, _commit_from)
LIMITS = RecordKind(3, Limits, _limits, _limits_from)
CLOSE = RecordKind(4, Close, _close, _close_from)
GROW = RecordKind(5, Grow, _grow, _grow_from)
CAPACITY = RecordKind(6, Capacity, _capacity, _capacity_from)
FROM_TARGET = RecordKinds(OPEN, COMMIT, LIMITS, CLOSE)
FROM_DRAFT = RecordKinds(GROW, CAPACITY, CLOSE)
