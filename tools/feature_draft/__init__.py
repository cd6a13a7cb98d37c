"""Drafts that see the target's features, as EAGLE heads do: text, training, checkpoint.

`write` lets the target write chats and records its last hidden states, `train` trains a draft on
them. Measuring one beside the plain draft is `bench.feature_draft`'s. Knows nothing of serving:
the product has no drafts of this kind (docs/decisions/0038).
"""
