"""Ports on which the parts find each other in a cluster; `outrider run` takes free ones instead."""

GRPC = 50051
"""Inference (targets) or Drafter (drafts), with Control and health beside it."""
HTTP = 8000
"""The OpenAI-compatible API of a target, and `/metrics` of any worker."""
RENDEZVOUS = 29500
"""Where the ranks of a replica that spans machines find its first one."""
