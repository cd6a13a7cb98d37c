"""`outrider profile`: what passes cost here, the fastest arrangement, and the split of devices.

Leaves the passes to workers, and rates that nobody timed to `placement`.
"""
