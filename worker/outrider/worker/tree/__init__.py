"""The draft tree in both copies, the target's mirror and the draft's own. Pure.

Walks, re-roots, node ids and the validation of growth, by the rules of docs/reference/protocol.md.
"""
