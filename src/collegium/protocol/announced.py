"""What a consortium announces to those who enrol."""

from __future__ import annotations

from pydantic import Field

from collegium.settings import Frozen


class AnnouncedTerms(Frozen):
    """What the consortium means to ask; the party writes it into its own policy, and refuses anything weaker later."""

    sum_mode: str = Field(max_length=64)
    mechanism: str = Field(max_length=64)
    noise_votes: float = Field(gt=0)
    """The smallest noise of any stage, in votes."""
    answers: int = Field(ge=1)
    """Answers to queries that a party gives altogether, with room for as many again: a round may be repeated."""
