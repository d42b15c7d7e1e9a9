"""The terms that a consortium announces to a party that enrols."""

from pydantic import Field

from collegium.protocol.roster import Hex32
from collegium.settings import Frozen


class AnnouncedEvaluation(Frozen):
    """The mechanism of an evaluation, and its noise in units of the largest contribution of one record."""

    sum_mode: str = Field(max_length=64)
    mechanism: str = Field(max_length=64)
    noise: float = Field(gt=0)


class AnnouncedTerms(Frozen):
    """What the consortium is going to ask. The party writes it into its policy, and later refuses anything weaker."""

    sum_mode: str = Field(max_length=64)
    mechanism: str = Field(max_length=64)
    noise_votes: float = Field(gt=0)
    """The smallest noise of any stage, in votes."""
    pools: tuple[Hex32, ...] = Field(max_length=16)
    """SHA-256 of the public pool whose inputs are asked about."""
    answers: int = Field(ge=1)
    """How many answers to queries one party gives in total, doubled because a round may be repeated."""
    evaluation: AnnouncedEvaluation | None = None
    """How parties measure the student on their own records; None where they do not."""
