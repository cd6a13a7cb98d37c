"""The engine: its loop, the runners that it calls, the transports of its messages.

The same loop runs target and draft. Leaves what runs to the schedulers in `target` and `draft`.
"""
