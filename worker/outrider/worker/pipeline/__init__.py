"""Pipelined target: what a leader and the stages that hold its layers say to each other.

Leaves a stage's forward pass and the wire to those that run them.
"""
