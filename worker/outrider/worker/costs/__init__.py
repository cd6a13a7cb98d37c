"""Costs of passes on this machine, measured once, and the numeric path that they choose.

Leaves what follows for drafting to `speculation`.
"""
