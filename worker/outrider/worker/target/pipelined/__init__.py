"""Requests of a pipelined target: what its leader commits, as tokens for clients and drafts.

Beside the scheduler of an unpipelined target, with the same sessions and answers. Leaves segments
and KV to `pipeline.leader`, the loop and the links to the stages to `engine`.
"""
