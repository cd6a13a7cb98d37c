"""The engine: its loop, the runners that it calls, and how messages reach it and leave it.

The same loop runs target and draft. Leaves decisions to the schedulers in `target` and `draft`.
"""
