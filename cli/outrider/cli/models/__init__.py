"""Models as a command line names them, and those that are kept on this machine.

Leaves fetching and converting them to a worker.
"""
