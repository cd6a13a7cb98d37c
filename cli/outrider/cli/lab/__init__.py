"""`outrider simulate` and `distil`: programs of the lab as processes, and what they found.

Leaves the work to `outrider.simulator` and `outrider.distil`, which are not imported.
"""
