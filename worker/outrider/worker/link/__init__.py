"""The link between a target and a draft: messages, codec, handshake, flow control.

A gRPC stream carries it or, where both see one folder, rings in memory that they share. Leaves what
the messages mean to `target` and `draft`; docs/reference/protocol.md has the rules.
"""
