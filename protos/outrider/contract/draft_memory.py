"""Memory of a draft inside its target's process: where it is."""

import enum


class DraftMemoryState(enum.StrEnum):
    """Where the weights of a draft are that shares a device with its target.

    OFFLOADING and RELOADING end when the copy has ended, not when it was ordered.
    """

    ON_DEVICE = "on_device"
    """The draft has its weights and KV."""
    OFFLOADING = "offloading"
    """Its weights are being copied to the host; its KV is given up."""
    ON_HOST = "on_host"
    """Its bytes are blocks of the target's KV."""
    RELOADING = "reloading"
    """The target has given the blocks back, and the weights are being copied."""
