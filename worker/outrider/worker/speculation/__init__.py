"""Speculation control: acceptance, planner of rows, waits for growth, the switch of drafting.

Pure: plain data in, decisions out. Leaves the tree to `tree`; only `target` imports it.
"""
