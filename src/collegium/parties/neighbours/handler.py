"""Answers requests for neighbours within a radius: find them, charge each, keep the answer, and only then send it."""

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium import limits
from collegium.data import Examples
from collegium.data.features import dimensions
from collegium.data.pools import contents_of
from collegium.data.task import Inputs
from collegium.parties.gate import pool_asked
from collegium.parties.handlers import VotesHandler
from collegium.parties.neighbours.budgets import RecordBudgets
from collegium.parties.neighbours.search import DistanceView, Searches
from collegium.parties.terms import mechanism_of
from collegium.protocol.messages import Request
from collegium.protocol.requests import CastNeighbours, VoteRequest, weight_units
from collegium_accounting.mechanisms import SumMode
from collegium_accounting.units import IntArray


class NeighbourIndex:
    """Finds who votes on a query, and with which weight.

    Whether a record votes depends on itself, on those of equal identity and on the request; on no other record.

    Parameters
    ----------
    person : number of the one whose record it is, shape ``[records]``.
    """

    def __init__(self, examples: Examples, inputs: Inputs, person: IntArray, device: str = "cpu") -> None:
        self._searches = Searches(examples, inputs, device)
        self._person = person
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
        places, units = places[units > 0], units[units > 0]
        if not self._alone:
            rows = view.rows[places]
            order = np.lexsort((self._labels[rows], view.exact(places), self._person[rows]))
            _, first = np.unique(self._person[rows][order], return_index=True)
            places, units = places[order][first], units[order][first]
        rows = view.rows[places]
        return self._person[rows], self._labels[rows], units


class CastNeighboursHandler(VotesHandler[CastNeighbours, Callable[[bool], tuple[NeighbourIndex, RecordBudgets]]]):
    """Lets the records near public inputs vote, within their own budgets."""

    def _answer(self, request: Request, body: CastNeighbours) -> NDArray[np.int64]:
        allowance = mechanism_of(body).record_budget
        assert allowance is not None  # records within a radius have budgets
        classes = len(self._task.classes)
        asked = pool_asked(self._pools, body.inputs, classes)[np.array(body.inputs.indices)]
        dimensions(body.features, self._task.inputs)  # raises for features that do not fit, before anything is counted
        index, budgets = self._voters(body.per_party)
        voters = index.voters(body, asked, allowance.levels)
        questions = _questions(request.run_id, body, asked)
        counts = np.zeros((len(questions), classes), dtype=np.int64)
        self._gate.check(request)
        with budgets.transaction(f"{request.run_id}/{body.ledger_id}", allowance) as spending:
            for row, (question, (people, labels, units)) in enumerate(zip(questions, voters, strict=True)):
                if (known := spending.answer(question, body.round_id)) is None:
                    admitted = spending.admit(people, units)
                    known = np.bincount(labels[admitted], weights=units[admitted], minlength=classes).astype(np.int64)
                    # Cutting off moves two neighbouring counts no further apart, and the range of a sum is public.
                    known = np.minimum(known, limits.MAX_NEIGHBOUR_COUNT)
                    spending.keep(question, known, body.round_id)
                counts[row] = known
        return counts

    def leave(self, run_id: str, asked: VoteRequest) -> None:
        """Have records pay anew for the next round that asks the same, where the parties' noise is another in each.

        To be called before a masked vector leaves. Until then a round may fail, and the next one costs nothing more.
        """
        if isinstance(asked, CastNeighbours) and asked.terms.sum_mode == SumMode.MASKED_AND_NOISED:
            x = pool_asked(self._pools, asked.inputs, 1)[np.array(asked.inputs.indices)]
            self._voters(asked.per_party)[1].leave(asked.round_id, _questions(run_id, asked, x))


def _questions(run_id: str, body: CastNeighbours, x: NDArray[Any]) -> list[bytes]:
    """A digest of each of the inputs ``x``, by its content, with everything that its answer is released under.

    In the modes whose noise the coordinator adds once per label of its ledger, the same question under the same
    ledger is the same answer whichever round it comes in. Where the parties add the noise, every round whose vector
    leaves is an answer in its own right, and paid as one.
    """
    common = "|".join(
        (
            "collegium-neighbours-v2",
            run_id,
            body.ledger_id,
            body.terms.mechanism,
            repr(sorted(body.terms.parameters.items())),
            body.terms.sum_mode,
            body.features.digest(),
            body.kernel,
        )
    )
    return [
        hashlib.sha256(f"{common}|{radius}|".encode() + content).digest()
        for content, radius in zip(contents_of(x), body.radii_squared, strict=True)
    ]
