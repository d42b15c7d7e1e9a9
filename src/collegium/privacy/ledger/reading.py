"""What a ledger was charged and what it may still be charged, as its entries stand now."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from collegium.privacy.ledger.entry import Block, Charge, ProtectedUnit, Terms, names_an_input, queries_digest
from collegium.privacy.ledger.following import FollowedLedger
from collegium_accounting.game.laws import Law, VectorLaw

Laws = Mapping[str, Law]
"""What one round releases, by unit."""


class LedgerReader(FollowedLedger):
    """A budget, what was charged to it, and the labels it paid for, as they stand. Safe for threads and processes."""

    def epsilon(self, unit: ProtectedUnit | None = None) -> float:
        """ε that the entries promise to the budget's own ``unit`` unless another is named; zero before any charge.

        It is that of the rounds that were charged; where answers decide how much is used of several blocks, it is
        that of the largest numbers of rounds that were stated. Infinite where a charge says nothing of that unit.
        """
        with self.reading() as chain:
            return chain.epsilon(unit)

    def terms(self) -> Terms:
        """What charges are made under now."""
        with self.reading() as chain:
            return chain.terms

    def charged(self) -> list[tuple[Terms, dict[str, int]]]:
        """All terms under which something was charged, with the rounds by purpose."""
        with self.reading() as chain:
            return [(terms, dict(rounds)) for terms, rounds in chain.periods if rounds]

    def units(self) -> list[ProtectedUnit]:
        """Every unit that charges are stated for, the budget's own first."""
        with self.reading() as chain:
            return chain.units()

    def untouched(self) -> dict[int, tuple[Terms, Charge]]:
        """Charges that name their queries and under which nothing was released, by number, with their terms."""
        with self.reading() as chain:
            return dict(chain.untouched)

    def unspent(self, names: Sequence[str], laws: Laws, purpose: str | None = None) -> int | None:
        """The charge for these names by ``laws`` under which nothing was released; None without.

        ``purpose`` : of the charge, where it matters.
        """
        charges = self.untouched().items()
        return next((seq for seq, paid in charges if _pays(*paid, queries_digest(names), laws, purpose)), None)

    def may_open(self, charge: int, sum_: str, names: Sequence[str], laws: Laws, purpose: str | None = None) -> bool:
        """Whether ``charge`` pays for the sum of this name: nothing was released under it, or it was spent on this sum.

        ``names``, ``laws`` and ``purpose`` as for `unspent`.
        """
        with self.reading() as chain:
            if charge in chain.opening:
                terms, paid, opened = chain.opening[charge]
                return opened == sum_ and _pays(terms, paid, queries_digest(names), laws, purpose)
            paid_for = chain.untouched.get(charge)
        return paid_for is not None and _pays(*paid_for, queries_digest(names), laws, purpose)

    def queries_charged(self) -> int:
        """Answers paid for so far, over all charges."""
        with self.reading() as chain:
            return chain.queries_charged

    def labels(self) -> dict[str, int]:
        """Every label released so far: query key to class, -1 for an abstention."""
        with self.reading() as chain:
            return {key: label for key, label in chain.labels.items() if names_an_input(key)}

    def used(self, purpose: str, blocks: Mapping[str, Block] | None = None) -> int:
        """Rounds of this block that were charged; 0 where the terms in force do not state it.

        With ``blocks``, by purpose, those that were charged while these were stated together.
        """
        with self.reading() as chain:
            terms = chain.terms if blocks is None else together(chain.terms, blocks)
            return chain.spending.used(terms, purpose) if purpose in terms.blocks else 0

    def left(self, purpose: str) -> float:
        """Rounds of this block that its number still allows; 0 where the terms in force do not state it."""
        with self.reading() as chain:
            block = chain.terms.blocks.get(purpose)
            if block is None:
                return 0
            return math.inf if block.rounds is None else block.rounds - chain.spending.used(chain.terms, purpose)


def together(terms: Terms, blocks: Mapping[str, Block]) -> Terms:
    """``terms`` with these blocks, fixed together, in place of others."""
    return replace(terms, blocks={purpose: replace(block, rounds=0) for purpose, block in blocks.items()})


def _pays(terms: Terms, paid: Charge, digest: str, laws: Laws, purpose: str | None) -> bool:
    """Whether a charge is for the queries of this digest, by these laws."""
    if paid.queries_sha256 != digest or purpose not in (None, paid.purpose):
        return False
    return _alike(terms.blocks[paid.purpose].laws, laws)


def _alike(paid: Laws, asked: Laws) -> bool:
    """Whether the laws are equal but for rounding: the last digits of noise change with the parties and the cells."""

    def same(one: Law, other: Law) -> bool:
        if not (isinstance(one, VectorLaw) and isinstance(other, VectorLaw)):
            return one == other
        return math.isclose(one.mu, other.mu, rel_tol=1e-9) and math.isclose(one.slack, other.slack, rel_tol=1e-9)

    return paid.keys() == asked.keys() and all(same(law, asked[unit]) for unit, law in paid.items())
