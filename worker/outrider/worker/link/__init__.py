"""The gRPC stream between a target and a draft: messages, codec, handshake, flow control.

Leaves what the messages mean to `target` and `draft`; docs/reference/protocol.md has the rules.
"""
