"""`outrider profile` inside a worker: measures step costs and recommends an arrangement.

Leaves the measurement of one model to `launch` and `model`, and the table to the command line.
"""
