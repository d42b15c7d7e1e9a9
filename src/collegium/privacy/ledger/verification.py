"""The whole check of a ledger: a second program walks its file, ε is computed twice, parties' signatures agree."""

import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, Popen

from collegium.errors import LedgerCorrupt
from collegium.privacy.ledger.chain import Head
from collegium.privacy.ledger.entry import ProtectedUnit
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.stated_laws import check_terms
from collegium.privacy.ledger.store import EntryStore
from collegium.privacy.ledger.verifier import Verified, verify
from collegium.privacy.ledger.witness import Witness, check_witness

_BYTES_A_PROCESS = 20_000_000
"""Of a ledger's file: their signatures take about two seconds, twice what another process takes to start."""


@dataclass(frozen=True)
class Verification:
    """What was found to hold.

    Parameters
    ----------
    found : what the second program read.
    epsilons : ε of everything charged, for each unit that charges are stated for.
    queries : answers charged.
    labels : labels of public inputs.
    witnesses : by party, what it signed last.
    other_ledgers : by party, those under which it agreed to something as well.
    """

    found: Verified
    epsilons: Mapping[ProtectedUnit, float]
    queries: int
    labels: int
    witnesses: Mapping[str, Witness]
    other_ledgers: Mapping[str, list[str]]


def verify_ledger(path: Path, key: bytes | None = None, head: Head | None = None, chain: str = "") -> Verification:
    """Check everything about the ledger's file at ``path``; LedgerCorrupt where something does not hold.

    Parameters
    ----------
    key : 32 bytes, the owner's; None where it is not known, so that the ledger is held against the key that it states.
    head : an entry that was printed earlier, and must be there.
    chain : names one of several ledgers in a file.
    """
    with closing(EntryStore.read(path, chain)) as kept:
        witnesses = kept.witnesses()  # first: parties of a run sign entries that are made meanwhile
    found = _walked(path, key, None if head is None else str(head), chain)
    with Ledger.read(path, signed=found.heads, chain=chain) as ledger:
        paid, identity, elsewhere = ledger.charged(), ledger.identity(), dict[str, list[str]]()
        for stated, _ in paid:
            check_terms(stated)
        epsilons = {unit: ledger.epsilon(unit) for unit in ledger.units()}
        queries, labels = ledger.queries_charged(), len(ledger.labels())
    for party, witness in witnesses.items():
        if not witness.holds or witness.head not in found.heads:
            raise LedgerCorrupt(f"{party} did not sign this ledger's head {witness.head}: another one took its place")
        elsewhere[party] = check_witness(party, witness, paid, identity)
    for unit, epsilon in epsilons.items():
        least, _ = found.bounds(*unit)
        if epsilon < least * (1.0 - 1e-9):
            raise LedgerCorrupt(f"the ledger counts ε = {epsilon:.6g}, its entries {least:.6g} or more: report this")
    return Verification(found, epsilons, queries, labels, witnesses, elsewhere)


def _walked(path: Path, key: bytes | None, head: str | None, chain: str) -> Verified:
    """What the second program finds. Where a ledger is long, several of it walk, and share the signatures."""
    processes = min(os.cpu_count() or 1, 1 + path.stat().st_size // _BYTES_A_PROCESS)
    with ExitStack() as others, suppress(LedgerCorrupt):
        walks = []
        for nth in range(1, processes):
            call = f"verify(Path({str(path)!r}), nth={nth}, of={processes}, chain={chain!r})"
            command = f"from pathlib import Path; from {verify.__module__} import verify; {call}"
            walks.append(others.enter_context(Popen([sys.executable, "-c", command], stderr=DEVNULL)))
        found = verify(path, key, head, 0, processes, chain)
        if not any(walk.wait() for walk in walks):
            return found
    return verify(path, key, head, chain=chain)  # names the first entry that is wrong
