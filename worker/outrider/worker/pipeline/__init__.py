"""Pipelined target: state machines of the leader and of the stages, and the records between them.

Pure: no clock, no transport. Leaves a stage's forward pass and the wire to those that run them.
"""
