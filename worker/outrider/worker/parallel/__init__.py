"""Tensor parallelism on CPU: ranks, their collectives, messages and runners.

Leaves starting the ranks to `launch`, ranks on GPUs to `gpu`.
"""
