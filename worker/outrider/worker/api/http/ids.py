"""Ids of answers, their items and calls."""

import secrets

ID_BYTES = 12


def new_id(prefix: str) -> str:
    """Return an id that no other answer has."""
    return prefix + secrets.token_hex(ID_BYTES)
