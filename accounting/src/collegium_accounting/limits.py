"""How large the parameters of a mechanism may be: what a sum over a consortium can hold."""

MAX_PARTIES = 10_000
MAX_CLASSES = 1_000
MAX_WEIGHT_LEVELS = 1_024
MAX_PARTS = 48
"""Classifiers that are measured in one evaluation; their files together are one message."""
MAX_SUM_LENGTH = 2**18
"""Numbers in a sum over all records. A number takes 8 bytes, and an answer fits into one message."""
