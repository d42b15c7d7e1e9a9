"""Lets the records near public inputs vote: find them, charge each, keep the answer, and only then send it."""

import itertools
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.data import Examples
from collegium.data.pools import contents_of
from collegium.data.task import Inputs
from collegium.errors import CostRefused
from collegium.models.features import dimensions
from collegium.parties.kind import Asked, Institution, PartyKind, check_classes, register
from collegium.parties.neighbours.budgets import RecordBudgets
from collegium.parties.neighbours.search import DistanceView, Searches
from collegium.protocol.kinds.near_records import CastNeighbours, weight_units
from collegium.protocol.question import keys
from collegium_accounting.units import IntArray

_AT_ONCE = 2048


class NeighbourIndex:
    """Finds who votes on a query, and with which weight.

    Whether a record votes depends on itself, on those of equal identity and on the request; on no other record.

    Parameters
    ----------
    person : number of the one whose record it is, shape ``[records]``.
    votes : which records may vote, shape ``[records]``; see `agreeing`. None for all.
    """

    def __init__(
        self,
        examples: Examples,
        inputs: Inputs,
        person: IntArray,
        device: str = "cpu",
        votes: NDArray[np.bool_] | None = None,
    ) -> None:
        self._searches = Searches(examples, inputs, device)
        self._person, self._votes = person, votes
        self._labels = examples.labels()
        self._alone = len(np.unique(person)) == len(person)

    def voters(
        self, body: CastNeighbours, x: NDArray[Any], levels: int
    ) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
        """For each input of ``x``: the people within its radius, their classes and their weights in units.

        Each person votes once a query, by the nearest record. Memory: see `Search`.
        Raises DataError when the features do not fit the task.
        """
        queries = self._searches.features_of(body.features, x)
        views = self._searches.under(body.features).within(queries, np.array(body.radii_squared, dtype=np.int64))
        for view, radius_squared in zip(views, body.radii_squared, strict=True):
            yield self._nearest(view, radius_squared, body.kernel, levels)

    def _nearest(
        self, view: DistanceView, radius_squared: int, kernel: str, levels: int
    ) -> tuple[IntArray, IntArray, IntArray]:
        places = np.arange(len(view.rows))
        units = view.steps(places, lambda distances: weight_units(distances, radius_squared, kernel, levels))
        voting = units > 0 if self._votes is None else (units > 0) & self._votes[view.rows]
        places, units = places[voting], units[voting]
        if not self._alone:
            rows = view.rows[places]
            order = np.lexsort((self._labels[rows], view.exact(places), self._person[rows]))
            _, first = np.unique(self._person[rows][order], return_index=True)
            places, units = places[order][first], units[order][first]
        rows = view.rows[places]
        return self._person[rows], self._labels[rows], units


def agreeing(person: IntArray, labels: IntArray, x: NDArray[Any]) -> NDArray[np.bool_]:
    """Which records vote where equal rows are one identity and no group names the person: those that agree.

    Two persons with equal rows and different labels would else be one voter, and removing one of them could turn its
    vote from a class into another: two entries change by 1 where one is charged. Two whose values a task tells apart,
    although they are spelt alike, could vote by one row until the budget is spent, and without it by the other row.
    With this, equal rows have the vote of their one label and place or none, so that a row that comes or goes changes
    one entry of a round at most, by a weight that their identity pays for on the side on which it votes. Nobody else's
    vote depends on it, so that the proof in docs/research/individual-neighbours.md holds with this identity as the one
    that is added or removed.

    Parameters
    ----------
    person : number of the identity of each record, ``[records]``.
    labels : int64 ``[records]``.
    x : the encoded records, ``[records, …]``.

    Returns
    -------
    Shape ``[records]``.
    """
    _, first, per_person = np.unique(person, return_index=True, return_counts=True)
    agree = np.ones(len(per_person), dtype=np.bool_)
    several = np.flatnonzero(per_person[person] > 1)
    for start in range(0, len(several), _AT_ONCE):
        records = several[start : start + _AT_ONCE]
        others = first[person[records]]
        equal = (x[records] == x[others]).reshape(len(records), -1).all(axis=1) & (labels[records] == labels[others])
        agree[person[records[~equal]]] = False
    return agree[person]


@register
class NearRecords(PartyKind[CastNeighbours]):
    """Lets the records near public inputs vote, within their own budgets."""

    question = CastNeighbours

    def __init__(self, own: Institution) -> None:
        super().__init__(own)
        self._neighbourhood = cache(self._made)

    def validate(self, question: CastNeighbours) -> None:
        check_classes(self.own.task, question.classes)
        dimensions(question.features, self.own.task.inputs)

    def compute(self, question: CastNeighbours, asked: Asked) -> IntArray:
        allowance = question.terms.described().record_budget(question.terms.added)
        assert allowance is not None  # records within a radius have budgets
        x, classes = self.own.inputs_of(question.inputs), question.classes
        index, budgets = self._voters(question.per_party)
        voters = index.voters(question, x, allowance.levels)
        rows = self._rows(question, asked.run_id, x)
        counts = np.zeros((len(rows), classes), dtype=np.int64)
        with budgets.transaction(f"{asked.run_id}/{question.ledger_id}", allowance) as spending:
            for at, (row, (people, labels, units)) in enumerate(zip(rows, voters, strict=True)):
                if (known := spending.answer(row, asked.round_id)) is None:
                    admitted = spending.admit(people, units)
                    known = np.bincount(labels[admitted], weights=units[admitted], minlength=classes).astype(np.int64)
                    # What is kept is what would leave: cut to the bound, as the template does.
                    known = np.minimum(known, question.high)
                    spending.keep(row, known, asked.round_id)
                counts[at] = known
        return counts

    def leave(self, question: CastNeighbours, asked: Asked) -> None:
        """Have records pay anew for the next round that asks the same, where the parties' noise is another in each.

        Until then a round may fail, and the next one costs nothing more.
        """
        if question.terms.noised:
            rows = self._rows(question, asked.run_id, self.own.inputs_of(question.inputs))
            self._voters(question.per_party)[1].leave(asked.round_id, rows)

    def _rows(self, question: CastNeighbours, run_id: str, x: NDArray[Any]) -> tuple[bytes, ...]:
        """What each row is, whatever the roster.

        Where the coordinator adds the noise, once for a label of its ledger, the same row is the same answer whichever
        round it comes in. Where the parties add it, every round whose vector leaves is an answer in its own right.
        """
        return keys(question, contents_of(x), run_id).rows

    def _voters(self, per_party: bool) -> tuple[NeighbourIndex, RecordBudgets]:
        if self.own.book().rho_allowed("records" if per_party else "party"):
            raise CostRefused("policy: what a record may spend is kept for the other kind of voters")
        return self._neighbourhood(per_party)

    def _made(self, per_party: bool) -> tuple[NeighbourIndex, RecordBudgets]:
        own = self.own
        votes: NDArray[np.bool_] | None = None
        if per_party:  # all records are one voter, whatever they are
            # A record that changes the party's votes costs up to twice what the party costs.
            everybody = itertools.repeat(b"", len(own.examples))
            budgets = RecordBudgets(own.book(), "party", own.key, everybody, "party", own.record_rho / 2.0)
        else:
            identities, scheme = own.examples.lasting_identities(own.task.model_dump_json())
            budgets = RecordBudgets(own.book(), "records", own.key, identities, scheme, own.record_rho)
            if own.examples.groups is None:
                votes = agreeing(budgets.person, own.examples.labels(), own.examples.x)
        return NeighbourIndex(own.examples, own.task.inputs, budgets.person, own.device, votes), budgets
