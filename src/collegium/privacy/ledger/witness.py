"""What a party signs of a coordinator's ledger: how far it followed it, and what it agreed to have released.

An auditor compares both with the ledger that was published. A ledger that charges other noise than the parties were
asked for, or fewer releases than they agreed to, does not bear their signatures out.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature

from collegium import signatures
from collegium.errors import CollegiumError, LedgerCorrupt
from collegium.privacy.ledger.entry import Terms
from collegium.privacy.ledger.stated_laws import covers
from collegium.privacy.ledger.steps import Step
from collegium_accounting.mechanisms import AddedBy, VoteMechanism

Charged = tuple[Terms, Mapping[str, int]]
"""Terms, and the rounds that were charged under them by purpose."""

_PURPOSE = b"collegium ledger followed v2\0"


class Witness(NamedTuple):
    """What a party signed last: its public key, the head that it followed, its signature, and what it agreed to."""

    key: bytes
    head: str
    signature: bytes
    agreed: str = "[]"

    @property
    def holds(self) -> bool:
        """Whether the holder of the key signed this."""
        try:
            signatures.verify(self.key, self.signature, followed(self.head, self.agreed))
        except (InvalidSignature, ValueError):
            return False
        return True


def followed(head: str, agreed: str) -> bytes:
    """What a party signs that was shown the chain up to ``head``; ``agreed`` as `agreement` and `listed` have it."""
    return b"%s%s\0%s" % (_PURPOSE, head.encode(), agreed.encode())


def agreement(ledger_id: str, step: Step, mode: str, classes: int | None) -> str:
    """The line of what one row of an answer is released by, as a party was asked for it.

    Parameters
    ----------
    ledger_id : names the ledger that pays, by the first digits of its first entry's hash.
    step : what was asked for, the first one of several on one sum; its unit are this party's voters.
    classes : that the row has a count for; None where it is no count of votes.
    """
    return json.dumps({"ledger": ledger_id[:32], "mode": mode, **asdict(step), "classes": classes}, sort_keys=True)


def listed(answers: Mapping[str, int]) -> str:
    """What a party agreed to: how many different rows under each `agreement`."""
    return json.dumps([{**json.loads(line), "answers": number} for line, number in sorted(answers.items())])


def check_witness(party: str, witness: Witness, charged: Sequence[Charged], identity: bytes) -> list[str]:
    """Raise LedgerCorrupt unless what was ``charged`` covers what ``party`` signed that it agreed to.

    Returns the names of other ledgers under which it agreed to something.
    """
    rounds = [(terms.blocks[purpose].step, n) for terms, held in charged for purpose, n in held.items()]
    others, alike, lie = set(), Counter[str](), ""
    try:
        for said in json.loads(witness.agreed):
            ledger, mode, answers = str(said.pop("ledger")), said.pop("mode"), int(said.pop("answers"))
            if ledger != identity.hex()[:32]:
                others.add(ledger)
                continue
            asked = Step.read(said)
            mechanism, _ = asked.described
            paid = sum(n for step, n in rounds if _covers(step, asked))
            # Without the parties' noise an answer may be asked for again, and records that pay for themselves are not
            # charged by the answer.
            counted = mode == "masked+noised" and mechanism.record_budget(AddedBy(asked.honest_survivors)) is None
            # One charge pays for one sum, however many honest parties that counts on.
            alike[apart := repr((mode, replace(asked, honest_survivors=0)))] += answers
            answers = alike[apart]
            if paid < (answers if counted else 1):
                named = ", ".join(f"{name} {value}" for name, value in mechanism.parameters().items())
                lie = (
                    f"{party} signed that it agreed to {answers} answers for {mechanism.name} ({named}), and the "
                    f"ledger charges {paid} of that cost: one of them lies"
                )
                break
    except (CollegiumError, ValueError, TypeError, KeyError, AttributeError) as error:
        why = error if isinstance(error, CollegiumError) else "it cannot be read"
        raise LedgerCorrupt(f"what {party} agreed to: {why}") from None
    if lie:
        raise LedgerCorrupt(lie)
    return sorted(others)


def _covers(step: Step | None, asked: Step) -> bool:
    """Whether a charge for ``step`` is for what a party agreed to, at its cost or more."""
    if step is None or (step.mechanism, step.stage) != (asked.mechanism, asked.stage):
        return False
    if asked.classes is not None and step.classes not in (None, asked.classes):
        return False
    (voters,) = asked.units.values()
    (mechanism, (stage,)), (_, (own,)) = asked.described, step.described
    if isinstance(mechanism, VoteMechanism) and step.units.get("party", voters)[0] < voters[0]:
        return False
    return covers(own.law(mechanism.unit()), stage.law(mechanism.unit()))
