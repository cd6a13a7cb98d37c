"""How every channel to a worker is opened."""

OPTIONS = (
    (
        "grpc.enable_http_proxy",
        0,
    ),  # a worker is on loopback or in the cluster, never behind a proxy
    ("grpc.max_receive_message_length", -1),  # the client trusts its server with its own answer
)
