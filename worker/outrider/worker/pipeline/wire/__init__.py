"""Wire of a pipelined target: its records as bytes, Hello, streams of gRPC.

Leaves what records mean to `pipeline.stage` and `pipeline.leader`.
"""
