"""`draft.placement: Auto`: the fastest arrangement of a service on this machine.

`estimate` says what each arrangement would give, from measured step costs and the pair's
acceptance; `facts` remembers both; `machine` is what there is; `choose` measures, tries and
decides, `choice` says why. Leaves running a service to `trial` and `local`.
"""
