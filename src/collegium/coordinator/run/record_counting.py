"""Counts of the parties' records in a run: their charge, their round, their noise, and what run.json says of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from collegium.coordinator.rounds.masked_sum import MaskedSum
from collegium.coordinator.rounds.round_requests import paid_from
from collegium.coordinator.rounds.rounds import VoteRound, VoteSum, quorum_count, round_id
from collegium.coordinator.run.counts_terms import counted_unit, counts_mechanism, counts_mode
from collegium.coordinator.run.factories import sum_in
from collegium.coordinator.run.labeller import Labeller
from collegium.coordinator.run.run_record import CountsRecord
from collegium.coordinator.run.surroundings import RunNotes, RunSetup
from collegium.coordinator.settings.run_config import CountsConfig
from collegium.errors import BudgetExceeded, CollegiumError, QuorumNotReached
from collegium.privacy.accounting.game.laws import Law
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.mechanisms import Mechanism, SumMode, SystemNoise
from collegium.privacy.mechanisms.record_counts import ONE, noisy
from collegium.privacy.renyi import FloatArray
from collegium.protocol.requests import CountRecords, Terms


class RecordCounting(ABC):
    """One kind of counts in one run; derive a class for each kind.

    Counts are paid for before the first label is bought, so that the labels cannot use up their share of the budget.

    Parameters
    ----------
    ledger_id : names the ledger under which the counts are released.
    settings : None where the run does not take these counts.
    """

    part: ClassVar[str]
    """The part of run.json that says what came of the counts; charges and progress are called so as well."""

    def __init__(
        self, setup: RunSetup, ledger: Ledger, notes: RunNotes, ledger_id: str, settings: CountsConfig | None
    ) -> None:
        self._setup, self._ledger, self._notes, self._ledger_id = setup, ledger, notes, ledger_id
        self._config, self._settings = setup.config, settings
        self.sum = setup.vote_sum if settings is None else self._sum_of(counts_mode(setup.config, settings))

    @abstractmethod
    def _parts_and_cells(self) -> tuple[int, int]:
        """The cells that a record adds to, and all cells, of counts as they are paid for."""

    def beside(self) -> dict[str, Law]:
        """What these counts release once beside the labels, by purpose; empty where nothing is to be paid for them."""
        held = getattr(self._notes.record, self.part)
        if self._settings is None or (held is not None and not held.paid):
            return {}
        return {self.part: self.mechanism(*self._parts_and_cells()).stages[0].law(counted_unit(self._config))}

    def pay(self, labeller: Labeller) -> None:
        """Charge the counts, unless that was done; where the budget does not take them, note that.

        The terms of ``labeller`` state them with the labels, before the first answer to either. What a record of the
        run says was paid is paid again unless the ledger holds a charge for it that is not spent.
        """
        held: CountsRecord | None = getattr(self._notes.record, self.part)
        if self._settings is None or (held is not None and (held.asked or not held.paid)):
            return
        parts, cells = self._parts_and_cells()
        mechanism = self.mechanism(parts, cells)
        noted: dict[str, Any] = {"sum_mode": self.sum.mode, "sigma": mechanism.parameters()["sigma"], "parts": parts}
        try:
            self._charge(mechanism, labeller)
            noted["paid"] = True
        except BudgetExceeded as error:
            noted["why_not"] = str(error)
        self._note(noted)

    def mechanism(self, parts: int, cells: int) -> Mechanism:
        """Counts in which a record adds to ``parts`` of ``cells``, as they are summed, with the noise that was paid."""
        assert self._settings is not None  # the configuration asks for them
        settings, held = self._settings, getattr(self._notes.record, self.part)
        if held is not None and held.paid and held.parts == parts:
            # The charge was made for this noise. The configuration, or the budget, may have changed since.
            settings = settings.model_copy(update={"sigma": held.sigma})
        mechanism = counts_mechanism(self._config, settings, parts, cells)
        if isinstance(self.sum, MaskedSum) and self.sum.noised:
            return mechanism.noised_by_parties(self.sum.plan.honest_survivors)
        return mechanism

    def _sum_of(self, mode: SumMode) -> VoteSum:
        """The votes' own may be no sum of such counts, or have a sparse graph, on which parties open no exact one."""
        reach = self._setup.reach
        return sum_in(mode, self._config, reach.parties, reach.signing_keys, self._setup.begun)

    def _charge(self, mechanism: Mechanism, labeller: Labeller | None = None) -> int:
        """The entry that pays for one release by ``mechanism``: one that is not spent yet, or a new one.

        Raises BudgetExceeded where a new one does not fit.
        """
        held, unit, study = mechanism.parameters(), self._ledger.terms().unit, self._setup.storage.study
        name = f"{self.part}|{study}|{unit}|{self.sum.mode}|{held['parts']}|{held['sigma']!r}"
        laws = {unit: mechanism.stages[0].law(counted_unit(self._config))}
        charge = self._ledger.unspent(name, laws)
        if charge is None and labeller is not None:
            charge = labeller.pay_beside(self.part, name)
        if charge is None:
            purpose = f"{self.part} once more" if self._ledger.used(self.part) else self.part
            charge = self._ledger.charge(purpose, [name], laws)
        return charge

    def _attempt(self, held: CountsRecord, find: Callable[[], Mapping[str, Any]]) -> None:
        """Have ``find`` ask the parties, and note what it returns or why it failed."""
        known = held.model_dump(include=set(CountsRecord.model_fields)) | {"asked": True, "why_not": None}
        self._note(known)
        try:
            with self._notes.timed(self.part):
                found = find()
        except CollegiumError as error:
            # Where too few answered, no sum was opened: the charge is good for another attempt.
            self._note(known | {"asked": not isinstance(error, QuorumNotReached), "why_not": str(error)})
            return
        self._note({**known, **found})

    def _released(
        self, mechanism: Mechanism, about: object, ask: Callable[[Terms, str, str, bool], CountRecords]
    ) -> tuple[str, FloatArray, float, Sequence[str]]:
        """Pay, unless a charge is left, ask the parties and release the counts.

        The charge is spent in the ledger before anybody sees a noisy count.

        Parameters
        ----------
        about : what the round is about: another value gives it another name.
        ask : makes the request from its terms, the round's name, the ledger with the charge, and whether parties send
            shares of their records.

        Raises BudgetExceeded where they are to be paid and do not fit; QuorumNotReached.

        Returns
        -------
        The round's name, the counts in records, the variance of the noise on each, and the parties that answered.
        """
        stage, votes, reach = mechanism.stages[0], self._config.votes, self._setup.reach
        charge, share = self._charge(mechanism), stage.share
        spend = partial(self._ledger.spend, charge)
        terms = Terms.of(mechanism, self.sum.mode, stage.name if mechanism.sum_per_stage else "")
        per_party = self._config.budget.unit == "party"
        name = round_id(self._ledger_id, (), (terms, about, per_party))
        asked_under = paid_from(self._ledger_id, charge, self.sum.mode)
        request, names = ask(terms, name, asked_under, per_party), reach.parties.names()
        quorum = quorum_count(votes.quorum, len(reach.roster if reach.roster is not None else names))
        tell, opening = partial(self._notes.tell, self.part), None if share is None else spend
        asked = VoteRound(request, dict.fromkeys(names, 0), request.length, votes.deadline_s, quorum, tell, opening)
        result = self.sum.sum_votes(asked)
        counts, sigma = result.counts[0], float(mechanism.parameters()["sigma"])
        if share is None:
            spend()
            counts = noisy(counts, sigma, SystemNoise())
        variance = sigma**2 if share is None else len(result.answered) * (share.sigma_share / ONE) ** 2
        return name, counts / ONE, variance, result.answered

    def _note(self, noted: Mapping[str, Any]) -> None:
        setattr(self._notes.record, self.part, noted)  # pydantic makes the part's own kind of record of it
        self._notes.write()
