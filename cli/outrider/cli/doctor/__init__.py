"""`outrider doctor`: whether this machine can run a service, and how.

`findings` looks, `checks` judges what was found and prints it. What a processor computes is
asked of a worker.
"""
