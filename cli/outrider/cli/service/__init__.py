"""The YAML of a service: read from a file or made of options, checked, arranged for one machine.

Leaves what may be in it to `operator.spec`, and running it to `local`.
"""
