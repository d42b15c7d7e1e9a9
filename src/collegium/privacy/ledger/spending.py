"""What was charged: rounds of blocks, and the ε that they add up to for each privacy unit.

Blocks whose largest numbers of rounds were fixed together may be interleaved and stopped in any way that depends on
the answers: their ε is that of the largest numbers, whatever was used of them. Numbers that are raised after answers
count as if all had been raised in proportion. A block on its own, or beside blocks whose numbers never change, costs
what was used of it. Blocks that were chosen after labels of others had been given out add up ε by ε, each at its
share of δ. docs/research/ledger-filter.md has the proof.
"""

from collections.abc import Mapping

from collegium.errors import LedgerCorrupt
from collegium.privacy.ledger.entry import Block, ProtectedUnit, Terms
from collegium_accounting.game.laws import Law, VectorLaw, block_epsilon
from collegium_accounting.game.winner import RoundLaw

Family = frozenset[tuple[str, str, frozenset[tuple[str, Law]], bool]]
"""Blocks that were fixed together: purpose, adjacency, the laws by unit, and whether the number never changes."""

Laws = dict[Law, tuple[int, int]]
"""Rounds of each law: those that count, and the most that were stated."""

_ALL_VECTORS = "all vectors"
_EITHER = "replace or add-remove"


class Spending:
    """The rounds that were charged, by family of blocks and purpose."""

    def __init__(self) -> None:
        self._used: dict[Family, dict[str, int]] = {}
        self._stated: dict[Family, dict[str, int]] = {}
        self._first: dict[Family, dict[str, int]] = {}

    def used(self, terms: Terms, purpose: str) -> int:
        """Rounds of this block that were charged under these terms, or under others that state the same blocks."""
        return self._used.get(_family(terms, purpose), {}).get(purpose, 0)

    def take(self, terms: Terms, purpose: str, rounds: int) -> None:
        """Count a charge under ``terms``; LedgerCorrupt where they do not allow it."""
        block = terms.blocks.get(purpose)
        if block is None:
            raise LedgerCorrupt(f"it charges {purpose!r}, which the terms in force do not state")
        if not block.laws:
            limits = [(other, held.rounds) for other, held in terms.blocks.items() if held.laws]
            whole = [(other, rounds) for other, rounds in limits if rounds is not None]
            if not whole or any(not 0 < rounds <= self.used(terms, other) for other, rounds in whole):
                raise LedgerCorrupt(f"it charges nothing for {purpose!r}, but the whole run is not paid for")
            return
        if terms.unit not in block.laws:
            raise LedgerCorrupt(f"it does not say what it costs one {terms.unit}, the unit of the budget")
        family = self._count(terms, purpose, rounds)
        if block.rounds is not None and self._used[family][purpose] > block.rounds:
            raise LedgerCorrupt(f"it charges more than the {block.rounds} rounds of {purpose!r} that the terms allow")
        self._first.setdefault(family, dict(self._stated[family]))

    def _count(self, terms: Terms, purpose: str, rounds: int) -> Family:
        """Count rounds of a block, and the numbers that are stated with it; returns its family."""
        family = _family(terms, purpose)
        used, stated = self._used.setdefault(family, {}), self._stated.setdefault(family, {})
        used[purpose] = used.get(purpose, 0) + rounds
        for other, block in _members(terms, purpose).items():
            stated[other] = max(stated.get(other, 0), block.rounds or 0)
        return family

    def _and(self, terms: Terms | None, more: Mapping[str, int] | None) -> "Spending":
        """What was charged, and ``more`` rounds under ``terms``, whether these allow them or not."""
        if terms is None or not more:
            return self
        both = Spending()
        both._first = self._first
        both._used = {family: dict(counts) for family, counts in self._used.items()}
        both._stated = {family: dict(counts) for family, counts in self._stated.items()}
        for purpose, rounds in more.items():
            if terms.blocks[purpose].laws:
                both._count(terms, purpose, rounds)
        return both

    def units(self) -> list[ProtectedUnit]:
        """Every unit that a cost was stated for."""
        stated = {(unit, adjacency) for family in self._used for _, adjacency, laws, _ in family for unit, _ in laws}
        return sorted(stated, reverse=True)  # records first

    @property
    def games(self) -> bool:
        """Whether some ε comes from a game rather than from a formula."""
        return any(isinstance(law, RoundLaw) for family in self._used for *_, laws, _ in family for _, law in laws)

    @property
    def adaptive(self) -> bool:
        """Whether several blocks were fixed together, so that answers may decide how much is used of each."""
        return any(len(family) > 1 and len(_flexible(family)) != 1 for family in self._used)

    @property
    def values(self) -> int | None:
        """How many values the ε of the ledger could have had, had answers stopped its rounds elsewhere.

        Each family with one number that answers may end counts apart. None where a number was not stated beforehand.
        docs/research/ledger-filter.md says what the ε that is printed is worth then.
        """
        several, found = len(self._used) > 1, 1
        for family, stated in self._stated.items():
            (*flexible,) = _flexible(family)
            if len(flexible) == 1:
                if not stated[flexible[0]]:
                    return None
                found *= stated[flexible[0]] + several  # none of another family's is a value as well
        return found

    def epsilon(
        self, unit: ProtectedUnit, delta: float, terms: Terms | None = None, more: Mapping[str, int] | None = None
    ) -> float:
        """ε of all that was charged to ``unit``, and of ``more`` rounds under ``terms``; infinite where not stated."""
        groups = self._and(terms, more)._groups(unit)
        if groups is None:
            return float("inf")
        share = delta / max(1, len(groups))
        return sum(
            block_epsilon(
                {law: count for law, (count, _) in group.items()},
                share,
                {law: most for law, (_, most) in group.items()},
            )
            for group in groups
        )

    def _groups(self, unit: ProtectedUnit) -> list[Laws] | None:
        """Laws and rounds that count together; None where a family does not state the unit's cost."""
        groups: dict[object, Laws] = {}
        for family, counts in self._used.items():
            holds = (unit[1], _EITHER)
            laws = {purpose: dict(held).get(unit[0]) for purpose, adjacency, held, _ in family if adjacency in holds}
            if len(laws) < len(family) or None in laws.values():
                return None
            # Several laws follow the path of their own family: the numbers of another were chosen apart.
            key: object = family if len(set(laws.values())) > 1 else frozenset(laws.values())
            if len(family) == 1 and isinstance(next(iter(laws.values())), VectorLaw):
                key = _ALL_VECTORS
            bounds = self._bounds(family)
            if bounds is None:
                return None
            alone = _flexible(family) if len(_flexible(family)) == 1 else set()
            group = groups.setdefault(key, {})
            for purpose, law in laws.items():
                assert law is not None  # tested above
                most = max(bounds.get(purpose, 0), counts.get(purpose, 0))
                count = counts.get(purpose, 0) if purpose in alone else most
                before, limit = group.get(law, (0, 0))
                group[law] = before + count, limit + most
        return list(groups.values())

    def _bounds(self, family: Family) -> Mapping[str, int] | None:
        """The most rounds of each block; None where a number was raised that had to stay.

        Answers may have decided which number was raised. So all numbers follow one path that was fixed by the first
        of them: if one is raised, all count as raised in proportion. Vectors need none: docs/research/ledger-filter.md.
        """
        stated, first, flexible = self._stated[family], self._first.get(family), _flexible(family)
        if first is None or all(isinstance(law, VectorLaw) for *_, laws, _ in family for _, law in laws):
            return stated
        if any(number > first[purpose] for purpose, number in stated.items() if purpose not in flexible):
            return None
        if len(flexible) <= 1:
            return stated
        raised = [purpose for purpose in flexible if stated[purpose] > first[purpose]]
        if any(first[purpose] == 0 for purpose in raised):
            return None
        # In whole numbers: ⌈first · stated/first of the block that was raised most⌉.
        return dict(stated) | {
            purpose: max([stated[purpose], *(-(-first[purpose] * stated[one] // first[one]) for one in raised)])
            for purpose in flexible
        }


def _members(terms: Terms, purpose: str) -> dict[str, Block]:
    """The blocks that were fixed together with this one, itself included."""
    if terms.blocks[purpose].rounds is None:
        return {purpose: terms.blocks[purpose]}
    return {other: block for other, block in terms.blocks.items() if block.laws and block.rounds is not None}


def _family(terms: Terms, purpose: str) -> Family:
    members = _members(terms, purpose).items()
    # With voters that stay a record added or removed moves one vote, as if replaced.
    adjacency = _EITHER if terms.fixed_voters and terms.adjacency == "replace" else terms.adjacency
    return frozenset((other, adjacency, frozenset(block.laws.items()), block.fixed) for other, block in members)


def _flexible(family: Family) -> set[str]:
    """The purposes of ``family`` whose numbers of rounds may be raised."""
    return {purpose for purpose, *_, fixed in family if not fixed}
