"""The target's scheduler: admission, prefill, verify rows, commit, and its sessions on drafts.

Decides what each step runs and what its result means. Leaves the loop and the forward pass to
`engine`, the choice of budgets to `speculation`.
"""
