"""Rules of the sources of draft tokens."""

from outrider.operator.spec.rule import Rule

SOURCES = (
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
)
