"""Ports, exit statuses and environment variables of worker processes."""

GRPC_PORT = 50051
"""In a cluster: Inference (targets) or Drafter (drafts), with health beside it; `outrider run`
takes free ports instead."""
HTTP_PORT = 8000
"""In a cluster: the OpenAI-compatible API of a target, and `/metrics` of any worker."""
DRAFT_GRPC_PORT = 50052
"""GRPC_PORT of a draft in its target's pod, on the pod's loopback alone."""
DRAFT_HTTP_PORT = 8001
"""HTTP_PORT of a draft in its target's pod."""
RENDEZVOUS_PORT = 29500
"""Where the ranks of a replica that spans machines find its first one."""
STAGE_PORT = 50053
"""In a cluster: where a stage of a pipelined target listens for the other stages."""
CONTROL_PORT = 50054
"""In a cluster: Control of any worker, which is the operator's alone."""

LIVENESS = "liveness"
"""Name of the service of a worker's gRPC health that says what `/healthz` does: whether its engine
goes on, ready or not."""

EXIT_ADDRESS_IN_USE = 3
"""Exit status of a worker whose port is taken: start it again on another one."""

ENV_NODES = "OUTRIDER_NODES"
"""Machines of a replica that spans several; each runs as many ranks. Set by what starts the pods
(docs/concepts/tensor-parallelism.md); a worker without it is alone on its machine."""
ENV_NODE = "OUTRIDER_NODE"
"""This machine's number, from 0; number 0 leads."""
ENV_LEADER = "OUTRIDER_LEADER"
"""Host name or address of number 0, as the others and it itself reach it."""
ENV_STAGES = "OUTRIDER_STAGES"
"""Addresses (host:port) of the stages of a pipelined target, in their order, with commas between.
Set by what starts the stages one by one; a worker without it starts its stages itself."""
ENV_STAGE = "OUTRIDER_STAGE"
"""This stage's number, from 0; number 0 leads."""
ENV_STAGES_RESERVED = "OUTRIDER_STAGES_RESERVED"
"""Set by a worker that starts its stages itself: it keeps their ports bound (SO_REUSEPORT), so that
nobody takes one before its stage listens, or while that starts again."""

ENV_PAGE = "OUTRIDER_PAGE"
"""`1`: the HTTP server of a target has the page at `/`. Set by `outrider run` and `serve`; in a
cluster by a `podTemplate` that wants it."""
