"""One sequence's verify passes in compiled code, with the passes of a draft in the same process.

`loop` runs them, `run` plans what may run so and books what it did, `runner` lays out the arrays.
"""
