"""Workers as processes: started, watched, started again after a crash, and steered.

Leaves which workers there are to `operator.plan`, and how a whole service runs to `local`.
"""
