"""This machine: its processors, GPUs, ports and folders, and the facts that measurements record.

Leaves what runs on them to `workers`.
"""
