"""The kind of question about the nearest records of a sample, which a policy agrees to by name."""

from collegium_reproduction.nearest.question import CountNearest

from collegium.protocol.question import own_kinds

AGREED = (*own_kinds(), CountNearest.kind)
"""The kinds of the package and that one, for `PolicyConfig.questions`."""
