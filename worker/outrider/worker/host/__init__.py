"""The machine below a worker: device, processors, and the parent process that it ends with.

Leaves models and memory for them to the folders above.
"""
