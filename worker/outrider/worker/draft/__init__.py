"""The draft's scheduler: sessions of many targets, growth passes, and growth that is sent.

Leaves the tree itself to `tree`, the loop and the forward pass to `engine`.
"""
