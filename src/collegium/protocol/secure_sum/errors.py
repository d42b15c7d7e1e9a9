"""What can go wrong in a secure sum; each attack of docs/research/attacks.md ends in one of these."""

import re

from collegium.errors import ProtocolViolation, QuorumNotReached


class SecureSumViolation(ProtocolViolation):
    """A peer broke the secure sum; the sum is abandoned and its secrets are gone.

    The code of a subclass is its name: ``secure-sum-wrong-ring`` for WrongRing.
    """

    code = "secure-sum"

    def __init_subclass__(cls) -> None:
        cls.code = "secure-sum" + re.sub("[A-Z]", lambda letter: f"-{letter[0].lower()}", cls.__name__)


class ReplayedRound(SecureSumViolation):
    """A message belongs to another round, consortium, roster or vector, or a round is run a second time."""


class AskedTwice(SecureSumViolation):
    """A phase was asked for again or out of order; a party answers each phase once."""


class MalformedMessage(SecureSumViolation):
    """A field of a message has the wrong length or names a party that does not exist."""


class ForgedSignature(SecureSumViolation):
    """A signature does not belong to the party, the round or the content that it is shown for."""


class SwappedKeys(SecureSumViolation):
    """The keys shown as a party's own are not those that it advertised, or a key is degenerate."""


class WrongGraph(SecureSumViolation):
    """A neighbour does not follow from the committed nonces and the list of adverts."""


class GarbledShare(SecureSumViolation):
    """An encrypted share cannot be opened: garbage, or meant for another party."""


class InconsistentSurvivors(SecureSumViolation):
    """The survivors' list differs from the one that was signed, or too few survivors signed it."""


class BothSecretsAsked(SecureSumViolation):
    """A party is named both alive and dropped, or neither: that would open its single vector."""


class WrongRing(SecureSumViolation):
    """A masked vector has another ring than the one that was set up."""


class WrongLength(SecureSumViolation):
    """A vector has another length than the one that was set up."""


class ValueOutOfRange(SecureSumViolation):
    """A value lies outside the range that was set up, so that the sum could wrap around."""


class ImpossibleTotal(SecureSumViolation):
    """The total is larger than all survivors together can have sent: one of them broke the range."""


class UnexpectedParty(SecureSumViolation):
    """A reply came from a party that was not asked, or that has answered already."""


class WrongShare(SecureSumViolation):
    """Shares of a secret do not give the secret that its owner committed to."""


class InsufficientPlan(SecureSumViolation):
    """The coordinator proposes a graph or a ring that does not give the protection demanded."""


class SumAborted(SecureSumViolation):
    """This sum has failed before; start a new round."""


class TooFewSurvivors(QuorumNotReached):
    """Too many parties dropped out for the sum to be opened safely."""

    code = "secure-sum-too-few-survivors"
