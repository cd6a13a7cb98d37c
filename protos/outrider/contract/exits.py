"""Exit statuses of a worker that whoever started it acts upon."""

ADDRESS_IN_USE = 3
"""Its port is taken: start it again on another one."""
