"""Pipelined target: its requests, the leader and the stages, and the records between them.

Leader and stages know neither clock nor transport; `loop` and `stage_loop` do, and `wire` carries
records over gRPC. Sessions, admission and answers are those of `target`.
"""
