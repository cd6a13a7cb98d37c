"""Choice of cases for an emulated processor, where compiling one takes a minute: `pytest -p`.

A loop runs on the processor whose own it is. Of the layouts of four-bit weights a processor takes
some: all processors together have each pair of properties, the processor being one of them.
"""

import pytest

from outrider.kernels.cpu.grouped_packing import LAYOUTS, Layout
from outrider.kernels.cpu.numeric_kind import NumericKind, kind_of
from outrider.kernels.jit import isa
from outrider.kernels.jit.isa import AARCH64, Isa
from tests.pairwise import covering

MIXED = (
    "test_layers_may_be_of_parts_that_differ",
    "test_layers_that_take_more_room_than_the_first_have_it",
)
"""Tests of most layouts at once, which the best processor alone takes."""


def layouts_of(processor: Isa) -> set[Layout]:
    """Return those that a processor takes."""
    rows = [(own, *layout) for own in AARCH64 for layout in LAYOUTS]
    return {Layout(*properties) for own, *properties in covering(rows) if own is processor}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the cases of other processors."""
    own = layouts_of(isa.current())
    left = [item for item in items if not _runs(item, own)]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


def _runs(item: pytest.Item, own: set[Layout]) -> bool:
    call = getattr(item, "callspec", None)  # of a test with parameters
    kind, layout = (call.params.get(name) if call else None for name in ("kind", "layout"))
    is_other = isinstance(kind, NumericKind) and kind is not kind_of(kind.path)
    is_mixed = item.name in MIXED and isa.current() is not AARCH64[-1]
    return not is_other and not is_mixed and (not isinstance(layout, Layout) or layout in own)
