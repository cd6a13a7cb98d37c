"""Requests and responses: gRPC `Inference`, the OpenAI HTTP API, chat templates, text, keys.

Turns protobuf and JSON into messages for the engine and back. Leaves sockets to `server`.
"""
