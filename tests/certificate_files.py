"""Self-signed certificates for tests, valid until 2100; their keys are no secrets."""

from pathlib import Path

FOLDER = Path(__file__).with_name("certificates")
LOOPBACK_CERT, LOOPBACK_KEY = FOLDER / "loopback.cert.pem", FOLDER / "loopback.key.pem"
"""Certificate of localhost and 127.0.0.1, and its key."""
ELSEWHERE_CERT, ELSEWHERE_KEY = FOLDER / "elsewhere.cert.pem", FOLDER / "elsewhere.key.pem"
"""Certificate of outrider.test only, and its key."""
LOCKED_KEY = FOLDER / "locked.key.pem"
"""The key of the first one, behind a passphrase."""
