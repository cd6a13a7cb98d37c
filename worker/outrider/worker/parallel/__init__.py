"""Tensor parallelism on CPU: what the ranks of one model tell each other, and who leads.

Leaves starting the ranks to `launch`, GPU ranks to `gpu`.
"""
