"""How every channel to a worker is opened, and what goes with every call on it."""

import grpc

Tls = bool | bytes
"""True trusts the system's roots, bytes are the PEM certificates of the roots to trust."""
Metadata = tuple[tuple[str, str], ...]

OPTIONS = (
    (
        "grpc.enable_http_proxy",
        0,
    ),  # a worker is on loopback or in the cluster, never behind a proxy
    ("grpc.max_receive_message_length", -1),  # the client trusts its server with its own answer
)


def credentials(tls: Tls) -> grpc.ChannelCredentials | None:
    """What a channel checks its server with; None: it speaks no TLS."""
    if tls is False:
        return None
    return grpc.ssl_channel_credentials(tls if isinstance(tls, bytes) else None)


def metadata(api_key: str | None) -> Metadata:
    """What names the caller."""
    return () if api_key is None else (("authorization", f"Bearer {api_key}"),)
