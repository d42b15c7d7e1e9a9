"""The durable account of what was charged and which labels were given out.

A charge is on the disk before ``charge`` returns, and a label is released only under a charge that is
already there: a crash may waste budget, never overspend it. A query has one label for good. The
entries form a signed chain (``chain``) in one SQLite file (``store``). Nothing secret is kept: no votes,
counts, gaps or private keys.
"""

import math
import operator
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collegium.clock import utc_now
from collegium.errors import (
    BudgetExceeded,
    CollegiumError,
    ConfigurationError,
    LabelConflict,
    StorageError,
)
from collegium.privacy.ledger.chain import Chain, Head, sign
from collegium.privacy.ledger.checkpoint import Checkpoints
from collegium.privacy.ledger.entry import (
    ABSTENTION,
    Block,
    Charge,
    Content,
    Release,
    Settings,
    Terms,
    encode,
    queries_digest,
    released_key,
)
from collegium.privacy.ledger.limits import most_rounds, rounds_that_fit
from collegium.privacy.ledger.reading import Laws, LedgerReader, together
from collegium.privacy.ledger.steps import Step
from collegium.privacy.ledger.store import EntryStore
from collegium.privacy.ledger.witness import Witness
from collegium_accounting.game.laws import Law
from collegium_accounting.renyi import checked_delta


class Ledger(LedgerReader):
    """A budget, what was charged to it, and the labels it paid for. Safe for threads and processes.

    Make one with ``Ledger.open`` (to write) or ``Ledger.read`` (to look).
    """

    def __init__(
        self,
        store: EntryStore,
        *,
        signer: Ed25519PrivateKey | None = None,
        terms: Terms | None = None,
        budget_setting: str = "",
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        super().__init__(store)
        self._terms = terms
        self._budget_setting = budget_setting
        self._signer = signer
        self._clock = clock
        self._checkpoints = Checkpoints(store, signer)

    @classmethod
    def open(  # noqa: PLR0913 -- what an owner says of its ledger, by name
        cls,
        where: Path | EntryStore,
        *,
        signer: Ed25519PrivateKey | None,
        delta: float,
        terms: Terms,
        name: str,
        budget_setting: str = "budget.epsilon in consortium.toml",
        clock: Callable[[], datetime] = utc_now,
        on_connect: Callable[[sqlite3.Connection], None] | None = None,
    ) -> "Ledger":
        """Open the ledger in the file or store ``where``, or create it.

        Every entry of an existing one is checked, after the owner's own checkpoint where there is one: what lies
        before it counts as it did when it was checked, whatever became of it in the file (`verify` tells).

        Parameters
        ----------
        signer : the owner's identity; None gives an unsigned ledger (simulations).
        name, delta : see ``Settings``; always those it was created with.
        terms : what is charged from now on; their blocks are stated by `allow` and `charge`. Where they differ from
            those in force they become an entry; what was charged before stays under its own terms and counts against
            the new budget by what it says of the new unit.
        budget_setting : where a user raises that budget, for the error that says so.
        clock, on_connect : the time that entries bear; a hook handed the connection before its first use.

        Raises
        ------
        ConfigurationError, when settings are invalid or not those of the existing ledger; LedgerCorrupt;
        StorageError, when the file cannot be read or written.
        """
        checked_delta(delta)
        budget = terms.epsilon_budget
        if budget is not None and not (math.isfinite(budget) and budget >= 0.0):
            raise ConfigurationError(f"{budget_setting} must be a finite number of 0 or more; got {budget}")
        public_key = b"" if signer is None else signer.public_key().public_bytes_raw()
        settings = Settings(name, float(delta), public_key)
        store = where if isinstance(where, EntryStore) else EntryStore.open(where, on_connect)
        try:
            ledger = cls(store, signer=signer, terms=terms, budget_setting=budget_setting, clock=clock)
            with store.lock, store.writing():
                if store.begin():
                    ledger._append(settings)
                if (recalled := ledger._checkpoints.last()) is not None:
                    ledger._chain = recalled
                _check_same(store.path, ledger.settings, settings)
                ledger._agree()
                ledger._checkpoints.keep(ledger._chain)
        except BaseException:
            if store is not where:
                store.close()
            raise
        return ledger

    @property
    def latest(self) -> Head | None:
        """The last entry that this object has taken in."""
        return self._chain.head

    def reread_after(self, head: Head | None) -> None:
        """Go back to the file where more than ``head`` was taken in: the transaction around it was undone."""
        with self._lock:
            if self._chain.head != head:
                self._chain = Chain()

    def _agree(self) -> None:
        """Put this owner's terms in force, inside ``_writing``; nothing is written where they are in force already.

        Blocks that are stated already stay while the mechanism, the adjacency and the votes of a unit do.
        """
        chain, terms = self._chain, self._terms
        if terms is None:
            raise StorageError("this ledger was opened readonly: open it with its owner's key and terms to charge")
        in_force = chain.terms
        same = (terms.mechanism, terms.adjacency, terms.votes_per_unit) == (
            in_force.mechanism,
            in_force.adjacency,
            in_force.votes_per_unit,
        )
        terms = replace(terms, blocks={**terms.blocks, **in_force.blocks} if same else terms.blocks)
        if terms == in_force:
            return
        if chain.queries_charged and terms.seeded != in_force.seeded:
            raise ConfigurationError(
                "the labels of this ledger were drawn with a seed and would be drawn without one, or the reverse: "
                "keep the seed as it was, or start in another folder"
            )
        self._append(terms)

    def close(self) -> None:
        """Let go of the file. Everything was already durable; a checkpoint saves time at the next start."""
        with self._lock:
            if self._checkpoints.due(self._chain):
                with suppress(CollegiumError), self._writing() as chain:
                    self._checkpoints.keep(chain)
            super().close()

    def allow(self, blocks: Mapping[str, Block], rounds: Mapping[str, int], in_all: Mapping[str, int] = {}) -> None:
        """State blocks that are fixed together, with room for ``rounds`` more of each, or for what the budget takes.

        Parameters
        ----------
        blocks : by purpose, in the order in which a query goes through them, without their rounds.
        rounds : by purpose, how many more rounds are wanted. The first block gets all of them where the budget takes
            that; the others get what is left.
        in_all : by purpose, how many rounds are wanted at least, with those that were charged before.
        """
        with self.reading() as chain:
            terms = together(self._terms or chain.terms, blocks)
            used = {purpose: chain.spending.used(terms, purpose) for purpose in blocks}
            wanted = {purpose: max(used[purpose] + rounds[purpose], in_all.get(purpose, 0)) for purpose in blocks}
            most = {purpose: max(n, used[purpose]) for purpose, n in most_rounds(chain, terms, wanted).items()}
        stated = {p: replace(block, rounds=most[p] if block.laws else None) for p, block in blocks.items()}
        with self._writing() as chain:
            self._agree()
            if chain.terms.blocks != stated:
                self._append(replace(chain.terms, blocks=stated))

    def affordable(self, purpose: str, at_most: int, laws: Mapping[str, Law] | None = None) -> int:
        """How many rounds of this block still fit its number and the budget, ``at_most`` or fewer; see `charge`."""
        with self.reading() as chain:
            terms = _stating(chain.terms, purpose, laws)
            return rounds_that_fit(chain, terms, purpose, at_most, self._terms or terms)

    def charge(
        self,
        purpose: str,
        queries: Sequence[str] | int,
        laws: Laws | None = None,
        expected: Laws | None = None,
        step: Step | None = None,
    ) -> int:
        """Pay one round of the block ``purpose`` for each of ``queries``; durable when this returns.

        Parameters
        ----------
        purpose : a block that `allow` stated, or any name where ``laws`` are given.
        queries : their keys, or how many.
        laws : what one round releases, by unit, of a block that is limited by the budget alone.
        expected : what the stated block must release; None where the caller is alone.
        step : what a round does, where ``laws`` are given; see `Block`.

        Returns
        -------
        The charge's number, under which its labels are released.

        Raises
        ------
        BudgetExceeded : not all of them fit; nothing is charged then.
        ConfigurationError : bad input, or a block that is not stated or that another writer took away or stated anew.
        """
        if isinstance(queries, int):
            count, digest = queries, ""
        else:
            count, digest = len(queries), queries_digest(queries)
            if isinstance(queries, str) or len(set(queries)) != count:
                raise ConfigurationError("a charge names its queries by a list of keys, each of them once")
        if count < 1:
            raise ConfigurationError("a charge needs at least one query")
        with self._writing() as chain:
            self._agree()
            terms = _stating(chain.terms, purpose, laws, step)
            block = terms.blocks.get(purpose)
            if block is None and expected is None:
                raise ConfigurationError(f"the ledger's terms state no block {purpose!r}: allow it first")
            if expected is not None and (block is None or block.laws != expected):
                raise ConfigurationError("another run uses this ledger at the same time: wait for its end, then go on")
            fit = rounds_that_fit(chain, terms, purpose, count, self._terms or terms)
            if fit < count:
                raise BudgetExceeded(
                    f"{chain.epsilon():.4g} of {chain.terms.epsilon_budget} charged, and only {fit} of {count} "
                    f"more queries fit; raise {self._budget_setting} or stop"
                )
            if terms != chain.terms:
                self._append(terms)
            return self._append(Charge(purpose, count, digest))

    def release(self, charge: int, labels: Mapping[str, int]) -> None:
        """Give out ``labels`` under an earlier charge; durable when this returns: show them only then.

        A query keeps the first label it got. The same one again changes nothing and costs nothing.

        Raises
        ------
        LabelConflict, when queries already have another label (another process was first). The rest
        of ``labels`` is released all the same, and the error's ``labels`` hold what counts for each query.
        ConfigurationError, when there is no such charge or it paid for fewer labels; then none is released.
        """
        asked = {query: operator.index(label) for query, label in labels.items()}
        if any(not isinstance(query, str) or label < ABSTENTION for query, label in asked.items()):
            raise ConfigurationError("a label is a class of 0 or more, or -1 for an abstention, under a query's key")
        with self._writing() as chain:
            left = chain.unreleased.get(charge, 0)
            fresh = {query: label for query, label in asked.items() if query not in chain.labels}
            if len(fresh) > left:
                raise ConfigurationError(
                    f"{len(fresh)} labels to release, but only {left} are left of what entry {charge} paid for: "
                    "charge first, then release"
                )
            if fresh:
                self._append(Release(charge, fresh))
            standing = {query: chain.labels[query] for query in asked}
        if standing != asked:
            conflicts = sum(standing[query] != label for query, label in asked.items())
            raise LabelConflict(f"{conflicts} queries already have another label, and keep it", standing)

    def spend(self, charge: int, *, for_labels: bool = False, on_sum: str = "") -> None:
        """Write down that what ``charge`` paid for is released now, before anybody sees it; durable when this returns.

        No file beside the ledger then decides whether it may be released again. ConfigurationError where it was.

        Parameters
        ----------
        for_labels : it is a noisy sum that decides labels, and they are released under the charge afterwards.
        on_sum : the name of the noisy sum, in hexadecimal, that is opened under this charge and no other.
        """
        with self._writing() as chain:
            if charge not in chain.untouched:
                raise ConfigurationError(f"what entry {charge} paid for was released before: start again to pay anew")
            self._append(Release(charge, {} if for_labels else {released_key(charge): 0}, on_sum))

    def keep_witnesses(self, witnesses: Mapping[str, Witness]) -> None:
        """Keep what parties signed of this ledger, by name; a signature that does not hold is left out."""
        if signed := {party: witness for party, witness in witnesses.items() if witness.holds}:
            with self._lock, self._store.writing():
                for party, witness in signed.items():
                    self._store.keep_witness(party, witness)

    def _append(self, content: Content) -> int:
        """Sign and store the next entry, inside ``_writing``."""
        try:
            now = self._clock()
            now = max(now, self._chain.time_utc or now)  # a clock that was set back dates nothing back
            body = encode(content, now.astimezone(UTC).isoformat(timespec="microseconds"))
        except (TypeError, ValueError):
            raise ConfigurationError("a ledger entry holds only plain texts and finite numbers") from None
        row = sign(self._chain.head, body, self._signer)
        self._store.insert(row)
        self._chain.absorb(row)
        return row.seq

    @contextmanager
    def _writing(self) -> Iterator[Chain]:
        """The chain as it is now, with every other writer kept out until what is appended is durable."""
        with self._lock:
            caught_up: Head | None = None
            try:
                with self._store.writing():
                    self._catch_up()
                    caught_up = self._chain.head
                    yield self._chain
            except BaseException:
                if self._chain.head != caught_up:
                    self._chain = Chain()  # what was appended did not reach the disk: read again
                raise


def _stating(terms: Terms, purpose: str, laws: Mapping[str, Law] | None, step: Step | None = None) -> Terms:
    """``terms`` with a block of its own for these laws, where there are any, limited by the budget alone."""
    return terms if laws is None else replace(terms, blocks={**terms.blocks, purpose: Block(laws, step=step)})


def _check_same(path: Path, begun: Settings, asked: Settings) -> None:
    """Raise ConfigurationError unless a ledger was ``begun`` as it is ``asked`` for now."""
    if begun.public_key != asked.public_key:
        raise ConfigurationError(
            f"the ledger {path} belongs to another identity: use its owner's key, or another folder"
        )
    for what in ("name", "delta"):
        old, new = getattr(begun, what), getattr(asked, what)
        if old != new:
            raise ConfigurationError(
                f"the ledger {path} was begun with {what} = {old}, not {new}: keep that or start in another folder"
            )
