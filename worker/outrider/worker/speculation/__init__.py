"""How much to speculate: acceptance estimates, candidates, planner, waits, the on/off switch.

Pure: plain data in, decisions out. Only `target` imports it, and it imports `tree` alone.
"""
