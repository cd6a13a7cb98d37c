"""Rules of the planner: its table, and what it needs of the service.

The table's are those of `outrider.contract.planning.table_problems`, whatever the order of entries.
"""

from collections.abc import Sequence
from typing import Any

from outrider.operator.spec.rule import Rule

TABLE = "spec.speculation.staticTable"


def _end(entry: Any) -> float:
    return float("inf") if entry.last is None else float(entry.last)


def _whole(entries: Sequence[Any]) -> bool:
    """True if the entries begin at 1, and each that ends has one that goes on."""
    starts = {entry.first for entry in entries}
    return 1 in starts and all(e.last is None or e.last + 1 in starts for e in entries)


def _disjoint(entries: Sequence[Any]) -> bool:
    """True if each entry shares numbers with itself alone."""
    return all(
        sum(one.first <= _end(other) and other.first <= _end(one) for other in entries) == 1
        for one in entries
    )


PLANNER = (
    Rule(
        TABLE,
        "self.all(e, !has(e.last) || e.last >= e.first)",
        "last must not be less than first",
        lambda table: all(entry.last is None or entry.last >= entry.first for entry in table),
    ),
    Rule(
        TABLE,
        "self.exists(e, e.first == 1) &&"
        " self.all(e, !has(e.last) || self.exists(o, o.first == e.last + 1))",
        "has a hole: each number of running requests from 1 on needs an entry; the last one leaves"
        " last out",
        _whole,
    ),
    Rule(
        TABLE,
        "self.all(e, self.exists_one(o, (!has(o.last) || e.first <= o.last) &&"
        " (!has(e.last) || o.first <= e.last)))",
        "has an overlap: a number of running requests is in more than one entry",
        _disjoint,
    ),
    Rule(
        "spec.speculation",
        "(self.planner == 'Static') == has(self.staticTable)",
        "goes with planner Static, which needs it",
        lambda s: (s.planner == "Static") == (s.static_table is not None),
        ".staticTable",
    ),
    Rule(
        "spec.speculation",
        "!has(self.staticTable) || self.staticTable.all(e, e.draftTokens <= self.maxRows)",
        "draftTokens must not be more than maxRows",
        lambda s: all(entry.draft_tokens <= s.max_rows for entry in s.static_table or ()),
        ".staticTable",
    ),
    Rule(
        "spec.speculation",
        "self.planner != 'Bandit' || self.bandit.maxDraftTokens <= self.maxRows",
        "must not be more than maxRows",
        lambda s: s.planner != "Bandit" or s.bandit.max_draft_tokens <= s.max_rows,
        ".bandit.maxDraftTokens",
    ),
    Rule(
        "spec.speculation",
        "size(self.sources) > 0",
        "must name one source or more; for plain decoding set mode to Disabled",
        lambda s: len(s.sources) > 0,
        ".sources",
    ),
    Rule(
        "spec.speculation",
        "self.sources.all(s, self.sources.exists_one(o, o == s))",
        "names a source twice",
        lambda s: len(set(s.sources)) == len(s.sources),
        ".sources",
    ),
    Rule(
        "spec",
        "!has(self.draft) || 'Draft' in self.speculation.sources",
        "lacks Draft, and there is a draft: leave spec.draft out",
        lambda s: s.draft is None or "Draft" in s.speculation.sources,
        ".speculation.sources",
    ),
    Rule(
        "spec",
        "has(self.draft) || !(self.speculation.planner in ['Bandit', 'Static'])",
        "Bandit and Static need a draft, and there is none",
        lambda s: s.draft is not None or s.speculation.planner not in ("Bandit", "Static"),
        ".speculation.planner",
    ),
    Rule(
        "spec",
        "self.target.parallelism.pipeline == 1 ||"
        " !(self.speculation.planner in ['Bandit', 'Static'])",
        "Bandit and Static plan whole passes, and target.parallelism.pipeline is more than 1",
        lambda s: (
            s.target.parallelism.pipeline == 1 or s.speculation.planner not in ("Bandit", "Static")
        ),
        ".speculation.planner",
    ),
)
