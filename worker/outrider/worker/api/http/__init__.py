"""The OpenAI-compatible HTTP API as a Starlette application.

Turns JSON into the same messages as gRPC. Leaves what they mean to `outrider.worker.api`.
"""
