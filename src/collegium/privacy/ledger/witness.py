"""What a party signs of a coordinator's ledger: how far it followed it, and what it agreed to have released.

An auditor compares both with the ledger that was published. A ledger that charges other noise than the parties were
asked for, or fewer releases than they agreed to, does not bear their signatures out.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from collegium.errors import CollegiumError, LedgerCorrupt
from collegium.privacy.ledger.chain import Entry
from collegium.privacy.ledger.entry import Charge, Terms
from collegium.privacy.ledger.stated_laws import covers
from collegium.privacy.ledger.steps import Step
from collegium_accounting.mechanisms import AnsweredBy, Mechanism, Stage, create

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
            Ed25519PublicKey.from_public_bytes(self.key).verify(self.signature, followed(self.head, self.agreed))
        except (InvalidSignature, ValueError):
            return False
        return True


def followed(head: str, agreed: str) -> bytes:
    """What a party signs that was shown the chain up to ``head``; ``agreed`` as `agreement` and `listed` have it."""
    return b"%s%s\0%s" % (_PURPOSE, head.encode(), agreed.encode())


def agreement(ledger_id: str, mechanism: Mechanism, stage: str, mode: str, classes: int | None, votes: int) -> str:
    """The line of what one row of an answer is released by, as a party was asked for it.

    Parameters
    ----------
    ledger_id : names the ledger that pays, by the first digits of its first entry's hash.
    stage : the step that was asked for; the first one of several on one sum.
    classes : that the row has a count for; None where it is no count of votes.
    votes : of this party in the row.
    """
    said = {
        "ledger": ledger_id[:32],
        "mechanism": mechanism.name,
        "parameters": mechanism.parameters(),
        "stage": stage or mechanism.stages[0].name,
        "mode": mode,
        "classes": classes,
        "votes": votes,
    }
    return json.dumps(said, sort_keys=True)


def listed(answers: Mapping[str, int]) -> str:
    """What a party agreed to: how many different rows under each `agreement`."""
    return json.dumps([{**json.loads(line), "answers": number} for line, number in sorted(answers.items())])


def check_witness(party: str, witness: Witness, entries: Iterable[Entry], identity: bytes) -> list[str]:
    """Raise LedgerCorrupt unless the charges cover what ``party`` signed that it agreed to.

    Returns the names of other ledgers under which it agreed to something.
    """
    charged = [(entry.terms, entry.content) for entry in entries if isinstance(entry.content, Charge)]
    others = set()
    try:
        for said in json.loads(witness.agreed):
            if said["ledger"] != identity.hex()[:32]:
                others.add(str(said["ledger"]))
                continue
            mechanism, stage = _step(said["mechanism"], said["parameters"], said["stage"])
            paid = sum(charge.queries for terms, charge in charged if _covers(terms, charge, mechanism, stage, said))
            # Without the parties' noise an answer may be asked for again, and records that pay for themselves are not
            # charged by the answer.
            counted = said["mode"] == "masked+noised" and mechanism.record_budget is None
            if paid < (said["answers"] if counted else 1):
                named = ", ".join(f"{name} {value}" for name, value in mechanism.parameters().items())
                raise LedgerCorrupt(
                    f"{party} signed that it agreed to {said['answers']} answers for {mechanism.name} ({named}), and "
                    f"the ledger charges {paid} of that cost: one of them lies"
                )
    except (CollegiumError, ValueError, TypeError, KeyError) as error:
        why = error if isinstance(error, CollegiumError) else "it cannot be read"
        raise error if isinstance(error, LedgerCorrupt) else LedgerCorrupt(f"what {party} agreed to: {why}") from None
    return sorted(others)


def _step(name: str, parameters: Mapping[str, Any], stage: str) -> tuple[Mechanism, Stage]:
    mechanism = create(name, **parameters)
    return mechanism, next(one for one in mechanism.stages if one.name == stage)


def _covers(terms: Terms, charge: Charge, mechanism: Mechanism, stage: Stage, said: Mapping[str, Any]) -> bool:
    """Whether a charge is for the step that a party agreed to, at its cost or more."""
    step: Step | None = terms.blocks[charge.purpose].step
    if step is None or (step.mechanism, step.stage) != (mechanism.name, stage.name):
        return False
    if said["classes"] is not None and step.classes not in (None, said["classes"]):
        return False
    if mechanism.answered_by is AnsweredBy.TEACHERS and step.units.get("party", (said["votes"],))[0] < said["votes"]:
        return False
    _, own = _step(step.mechanism, step.parameters, step.stage)
    unit = mechanism.unit()
    return covers(own.law(unit), stage.law(unit))
