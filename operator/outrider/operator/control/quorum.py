"""Quorum of targets: how many of them speak for all. Pure.

Half is enough: targets share their drafts and their load, so the rest is like them. What must hold
for every target, such as that none has work, does not go by it.
"""

from collections.abc import Iterable


def is_quorum(some: int, every: int) -> bool:
    """True if `some` targets speak for `every` one."""
    return some > 0 and 2 * some >= every


def agreed_version(versions: Iterable[int]) -> int:
    """Return the newest policy version that a quorum follows; a silent target counts as 0."""
    newest = sorted(versions, reverse=True)
    return newest[(len(newest) - 1) // 2] if newest else 0
