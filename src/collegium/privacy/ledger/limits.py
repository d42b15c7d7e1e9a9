"""How many rounds of each block the terms of a ledger state: as many as are wanted, or as the budget takes."""

from bisect import bisect
from collections.abc import Callable, Mapping
from dataclasses import replace

from collegium.privacy.ledger.chain import Chain
from collegium.privacy.ledger.entry import Terms
from collegium_accounting.game.laws import Law, block_epsilon, coarser
from collegium_accounting.game.winner import RoundLaw

_CLOSER = 2
"""The exact accountant affords less than so many times the rounds of the whole noisy counts."""

_SPARE = 8
_MOST_STEPS = 12


def most_rounds(chain: Chain, terms: Terms, wanted: Mapping[str, int]) -> dict[str, int]:
    """The rounds of each block of ``terms`` that are stated, ``wanted`` or fewer.

    A block on its own, or beside fixed ones, may get more than the budget takes: its charges are tested one by one.
    Several blocks get numbers that fit the budget together: the first ones all that is wanted if they can, and the
    others what is left.
    """
    paid = {purpose: block.laws[terms.unit] for purpose, block in terms.blocks.items() if block.laws}
    if terms.epsilon_budget is None or not paid:
        return dict(wanted)
    budget, delta = terms.epsilon_budget, chain.settings.delta

    def within(rounds: Mapping[str, int], changed: list[str]) -> int:
        """The most rounds of the ``changed`` blocks to look at, beside ``rounds`` of the others."""

        def loosely(number: int) -> float:
            counts: dict[Law, int] = {}
            for purpose, law in paid.items():
                loose = coarser(law) if isinstance(law, RoundLaw) else law
                counts[loose] = counts.get(loose, 0) + (number if purpose in changed else rounds[purpose])
            return block_epsilon(counts, delta)

        most = max(wanted[purpose] for purpose in changed)
        return min(most, _CLOSER * bisect(range(1, most + 1), budget, key=loosely) + _SPARE)

    flexible = [purpose for purpose in paid if not terms.blocks[purpose].fixed]
    if len(flexible) == 1:
        (only,) = flexible
        return {**wanted, only: within(wanted, [only])}

    def epsilon(rounds: Mapping[str, int]) -> float:
        blocks = {p: replace(block, rounds=rounds[p] if block.laws else None) for p, block in terms.blocks.items()}
        return chain.epsilon(None, replace(terms, blocks=blocks), dict.fromkeys(paid, 0))

    def with_all(changed: list[str], number: int) -> dict[str, int]:
        return {**wanted, **{purpose: min(number, wanted[purpose]) for purpose in changed}}

    for changed in (flexible[start:] for start in reversed(range(len(flexible)))):
        bracket = within(wanted, changed)
        number = _close_to_largest(lambda n, these=changed: epsilon(with_all(these, n)), budget, 0, bracket)  # type: ignore[misc]
        if number:
            break
    return with_all(changed, number)


def rounds_that_fit(chain: Chain, terms: Terms, purpose: str, at_most: int, budgeted: Terms) -> int:
    """How many more rounds of a block of ``terms`` fit its number and the budget, ``at_most`` or fewer.

    ``budgeted`` are the terms whose budget and unit count: the owner's own, which may not be in force yet.
    """
    block = terms.blocks.get(purpose)
    if block is None or at_most <= 0:
        return 0
    if not block.laws:
        return at_most
    if block.rounds is not None:
        at_most = min(at_most, block.rounds - chain.spending.used(terms, purpose))
    budget, unit = budgeted.epsilon_budget, chain.protected(budgeted)
    if budget is None or at_most <= 0:
        return max(at_most, 0)

    def epsilon(rounds: int) -> float:
        return chain.epsilon(unit, terms, {purpose: rounds})

    # Blocks that were fixed together cost the same whatever is used of them: all fit, or none.
    return at_most if epsilon(at_most) <= budget else bisect(range(1, at_most), budget, key=epsilon)


def _close_to_largest(epsilon: Callable[[int], float], budget: float, low: int, high: int) -> int:
    """A number from ``low`` to ``high`` that fits and is within 2 % of the largest that does; ``low`` if none does.

    Each ε may take seconds, and grows about as the square root of the number: that leads the search.
    """
    rounds = high
    for _ in range(_MOST_STEPS):
        found = epsilon(rounds)
        low, high = (rounds, high) if found <= budget else (low, rounds - 1)
        guess = int(0.995 * rounds * (budget / found) ** 2) if found > 0.0 else high
        rounds = min(max(guess, low + 1), high)
        if rounds <= low + low // 50 and (low >= high or guess <= low + low // 50):
            break
    return low
