"""The target's scheduler: admission, prefill, verify batches, commit, and its sessions on drafts.

Decides which rows each step runs and applies the result. Leaves the loop and the forward pass to
`engine`, budgets and waits to `speculation`.
"""
