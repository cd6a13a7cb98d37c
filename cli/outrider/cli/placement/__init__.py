"""`draft.placement: Auto`: the fastest arrangement of a service on this machine.

`formula` says what an arrangement gives, from measured passes and the pair's acceptance; `measure`
asks the workers that will serve for both, `facts` remembers them, and `choose` decides. Leaves
running the service to `local`.
"""
