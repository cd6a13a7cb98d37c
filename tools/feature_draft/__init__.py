"""Drafts that see the target's features, as EAGLE heads do: chats, and training on them.

`write` lets the target write chats, `train` trains a draft on them; both are `outrider.distil`'s.
Measuring one beside the plain draft is `bench.feature_draft`'s. Knows nothing of serving: the
product has no drafts of this kind (docs/decisions/0038).
"""
