"""A rehearsal: the whole run on invented records, under a name of its own.

The consortium's name is a part of everything that is signed. A rehearsal has another one, which no consortium may have,
so that nothing that was signed in it is of any use in a study, or the reverse.
"""

SUFFIX = "-rehearsal"


def rehearsal_of(consortium: str) -> str:
    """The name under which a consortium rehearses."""
    return consortium + SUFFIX


def is_rehearsal(name: str) -> bool:
    """Whether a run of this name is a rehearsal."""
    return name.endswith(SUFFIX)
