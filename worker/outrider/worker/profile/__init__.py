"""`outrider profile` inside a worker: step costs measured, and the placement that they recommend.

Leaves the measurement of one model to `launch` and `model`, and the table to the command line.
"""
