"""The format of a file of API keys.

Leaves to the caller where the file is, and what to say of one without keys.
"""


def api_keys(text: str) -> tuple[str, ...]:
    """One key a line; empty lines, and spaces around a key, do not count."""
    return tuple(key for line in text.splitlines() if (key := line.strip()))
