"""Start of engines: models loaded and warmed up, schedulers built, processes, threads and ranks.

The only package that imports target, draft, gpu and parallel together. Leaves serving to `server`.
"""
