"""How often a client is sent tokens: the limits of `stream_interval_ms` of a request."""

STREAM_INTERVAL_MS = 16
"""By default: tokens that come faster than a screen is refreshed travel together. A message costs
server and client about 0.5 and 0.3 ms of processor time whatever its size (Zen 5, grpcio 1.85), and
each pass waits for the thread whose processor they take. Plain decoding of the demo on two
processors: 3.78 ms a token."""
MAX_STREAM_INTERVAL_MS = 1000
"""Of answers that nobody reads before their end, too: so often, the server's metrics and a client
that is cut off learn what has come. As above: 3.38 ms a token."""
