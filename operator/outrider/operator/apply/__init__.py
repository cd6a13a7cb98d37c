"""Writing of what a service needs: the order, what is left alone, what is tried again and when.

Leaves what is needed to `manifests`.
"""
