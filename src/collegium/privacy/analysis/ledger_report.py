"""What a ledger's entries come to: ε for every privacy unit, and as queries went by.

Everything here is data-independent, follows from the entries alone, and may be published.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from collegium.privacy.ledger.chain import Entry
from collegium.privacy.ledger.entry import Charge, Terms
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.stated_laws import check_terms


@dataclass(frozen=True)
class LedgerReport:
    """The terms of a ledger and what was charged.

    Parameters
    ----------
    terms : Terms
        Those in force, without their blocks.
    earlier_terms : tuple of Terms
        Those before them under which something was charged.
    delta : float
        δ of every ε here.
    adaptive : bool
        Whether answers decide how much is used of several blocks: every ε is then that of the rounds that were stated.
    values : int or None
        How many values ε could have had, had answers stopped the rounds elsewhere: it holds at so many times δ then.
        None where that is not bounded.
    units : mapping
        ε for each unit (``record``, ``party``) that charges are stated for.
    queries_charged : int
        Answers that were paid for.
    by_queries : tuple of pairs
        Queries asked so far, and the ε after them for the unit of the terms.
    adjacency : tuple of str
        What neighbouring data sets were, over all charges.
    from_utc, until_utc : str or None
        When the first and the last charge were made; None before any.
    """

    terms: Terms
    earlier_terms: tuple[Terms, ...]
    delta: float
    adaptive: bool
    units: Mapping[str, float]
    queries_charged: int
    by_queries: tuple[tuple[int, float], ...]
    adjacency: tuple[str, ...]
    from_utc: str | None
    until_utc: str | None
    values: int | None = None

    @property
    def epsilon(self) -> float:
        """The ε that may be published for the unit of the terms."""
        return self.units[self.terms.unit]


def charged_epsilons(ledger: Ledger) -> dict[str, float]:
    """ε of everything charged, for each unit that charges are stated for.

    Raises LedgerCorrupt where an entry states less than its mechanism costs, or costs of no mechanism that is known.
    """
    for terms, _ in ledger.charged():
        check_terms(terms)
    return {unit[0]: ledger.epsilon(unit) for unit in ledger.units()}


def ledger_report(ledger: Ledger) -> LedgerReport:
    """Every ε of everything charged, from the ledger's entries alone."""
    paid = [(entry, entry.content) for entry in ledger.entries() if isinstance(entry.content, Charge)]
    terms, delta = replace(ledger.terms(), blocks={}), ledger.settings.delta
    earlier: list[Terms] = []
    for entry, _ in paid:
        held = replace(entry.terms, blocks={})
        if held != terms and held not in earlier:
            earlier.append(held)
    with ledger.reading() as chain:
        adaptive, values = chain.spending.adaptive, chain.spending.values
    return LedgerReport(
        terms=terms,
        earlier_terms=tuple(earlier),
        delta=delta,
        adaptive=adaptive,
        units=charged_epsilons(ledger),
        queries_charged=sum(charge.queries for entry, charge in paid if _asks(entry.terms, charge)),
        by_queries=_by_queries(paid),
        adjacency=tuple(sorted({entry.terms.adjacency for entry, _ in paid})),
        from_utc=paid[0][0].time_utc if paid else None,
        until_utc=paid[-1][0].time_utc if paid else None,
        values=values,
    )


def _asks(terms: Terms, charge: Charge) -> bool:
    """Whether the charge is for queries, and not for a run as a whole or a vector that is released once."""
    block = terms.blocks[charge.purpose]
    # Where the answers of a block are free, another block is charged for the run.
    free = any(not other.laws for other in terms.blocks.values())
    whole = block.fixed or block.rounds is None or free
    return bool(charge.queries_sha256) and not (block.laws and whole)


def _by_queries(paid: Sequence[tuple[Entry, Charge]]) -> tuple[tuple[int, float], ...]:
    """ε after each charge. A query counts where it enters the mechanism; later stages show as a rise on the spot."""
    asked, points = 0, [(0, 0.0)]
    first_stages: dict[str, str] = {}
    for entry, charge in paid:
        if _asks(entry.terms, charge):
            name = str(entry.terms.mechanism.get("name", ""))
            asked += charge.queries if first_stages.setdefault(name, charge.purpose) == charge.purpose else 0
            points.append((asked, entry.spent))
    if paid and paid[-1][0].spent > points[-1][1]:  # what was paid last asked no query
        points.append((asked, paid[-1][0].spent))
    return tuple(points)
