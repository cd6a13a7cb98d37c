"""Pipelined target: state machines of the leader and of the stages, and the records between them.

These know neither clock nor transport. Beside them a stage's loop and its executor on the CPU; the
transports are in `wire`.
"""
