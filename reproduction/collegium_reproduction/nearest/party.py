"""Counts sampled records around public inputs, by distance and class; the party's own coins sample them.

A coin is a keyed function of the question and of the person alone, known to nobody outside. So a question that comes
again finds the same sample and cannot be averaged, another question (another stage, ledger, run, input or features) a
fresh one, and a person who comes or goes changes nobody else's coin.
"""

import hmac
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from collegium.data import Examples
from collegium.data.pools import contents_of
from collegium.data.several_labels import held_in
from collegium.data.task import Inputs
from collegium.models.features import dimensions
from collegium.parties.kind import Asked, PartyKind, check_classes, register
from collegium.parties.neighbours.search import DistanceView, Searches
from collegium.parties.teachers.splits import derive_key
from collegium_accounting.units import IntArray
from collegium_reproduction.clipped_votes import clipped_votes
from collegium_reproduction.nearest.question import CountNearest

_NAME_BYTES = 16
_CELLS = 2048
"""Of the table that finds a distance's interval."""


class Sampler:
    """Draws Poisson samples of the people behind some records.

    Parameters
    ----------
    key : the party's secret of 32 bytes.
    identities : who each record is; those of equal identity are sampled together.
    """

    def __init__(self, key: bytes, identities: Iterable[bytes]) -> None:
        naming = derive_key(key, "sampled people")
        self._coins = derive_key(key, "sampling coins")
        digests = (hmac.digest(naming, identity, "sha256")[:_NAME_BYTES] for identity in identities)
        names, person = np.unique(np.fromiter(digests, dtype=f"V{_NAME_BYTES}"), return_inverse=True)
        self.person: IntArray = person
        """Number of the one whose record it is, shape ``[records]``."""
        self._names = names.tobytes()

    def drawn(self, question: bytes, rate: float) -> NDArray[np.bool_]:
        """The sample, shape ``[people]``: each person with probability ``rate`` (to 2^-64, never more), independently.

        AES-256 under a key of the question's own, on the people's distinct names: a pseudorandom function but for
        the absence of collisions, which 2^-128 per pair hides.
        """
        below = int(rate * 2.0**64)
        if below >= 2**64:
            return np.ones(len(self._names) // _NAME_BYTES, dtype=bool)
        key = hmac.digest(self._coins, question, "sha256")
        # One block per person and one key per question: no block is ever encrypted twice.
        encryptor = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()
        coins = np.frombuffer(encryptor.update(self._names) + encryptor.finalize(), dtype="<u8")[::2]
        drawn: NDArray[np.bool_] = coins < np.uint64(below)
        return drawn


class SampledRecords:
    """A party's records, of which a fresh Poisson sample answers each question.

    A person with several records answers by the nearest of them that lie in the sample with it, so that one person
    more or less is one record more or less, whichever it is.
    """

    def __init__(self, examples: Examples, inputs: Inputs, key: bytes, device: str = "cpu") -> None:
        self._sampler = Sampler(key, examples.identities())
        person = self._sampler.person
        self._shared = np.bincount(person)[person] > 1
        self.labels = examples.labels()
        self._searches = Searches(examples, inputs, device)

    def samples(self, run_id: str, body: CountNearest, x: NDArray[Any]) -> Iterator[tuple[DistanceView, IntArray]]:
        """For each input of ``x``: how far the records are from it, and which of them are in its sample.

        Raises DataError when the features do not fit the task.
        """
        rate = body.terms.parameters["sampling_rate"]
        views = self._searches.under(body.features).views(self._searches.features_of(body.features, x))
        for content, view in zip(contents_of(x), views, strict=True):
            yield view, self._one_each(view, self._sampler.drawn(body.sample(run_id, content), rate))

    def counts(self, run_id: str, body: CountNearest, x: NDArray[Any]) -> IntArray:
        """What `CountNearest` asks, of its shape: per interval the classes, or records and parts of votes by label."""
        counts = np.empty((len(x), body.intervals, body.per_interval), dtype=np.int64)
        votes = None if body.tau is None else clipped_votes(held_in(self.labels, body.classes), body.tau)
        for row, (view, sampled) in enumerate(self.samples(run_id, body, x)):
            intervals = intervals_of(view, sampled, body.edges_squared[row])
            if votes is None:
                cells = intervals * body.classes + self.labels[sampled]
                of_cells = np.bincount(cells, minlength=body.intervals * body.classes)
                # Of more than k of one kind, the k-th is the last that can count; the range of a sum is public.
                counts[row] = np.minimum(of_cells, body.k).reshape(body.intervals, body.classes)
                continue
            for interval in range(body.intervals):
                inside = votes[sampled[intervals == interval]]
                counts[row, interval] = [min(len(inside), body.k), *_sum_of_at_most(inside, body.k)]
        return counts.reshape(len(x), -1)

    def _one_each(self, view: DistanceView, drawn: NDArray[np.bool_]) -> IntArray:
        person = self._sampler.person
        rows = np.flatnonzero(drawn[person])
        shared = rows[self._shared[rows]]
        if not len(shared):
            return rows
        order = np.lexsort((self.labels[shared], view.exact(shared), person[shared]))
        _, first = np.unique(person[shared][order], return_index=True)
        return np.concatenate([rows[~self._shared[rows]], shared[order][first]])


def intervals_of(view: DistanceView, places: IntArray, edges_squared: IntArray) -> IntArray:
    """For each of ``places``, how many of the ascending edges lie at or below its squared distance."""

    def below(distances: IntArray) -> IntArray:
        return np.searchsorted(edges_squared, distances, side="right")

    # Most distances lie in a cell of a table that holds no edge. A cell is taken wider at both ends by the error,
    # and by a tenth of itself, far more than its borders are rounded. No edge lies in the first or the last cell.
    first, last = float(edges_squared[0]), float(edges_squared[-1])
    width = (last - first + 2.0 * (view.error + 1.0)) / (_CELLS - 4)
    starts = first - view.error - 1.0 - 2.0 * width + width * np.arange(_CELLS)
    least = np.searchsorted(edges_squared, starts - (0.1 * width + view.error), side="right")
    most = np.searchsorted(edges_squared, starts + (1.1 * width + view.error), side="right")
    cells = ((view.near[places].astype(np.float64) - starts[0]) * (1.0 / width)).astype(np.int64)
    np.clip(cells, 0, _CELLS - 1, out=cells)
    found: IntArray = least[cells]
    unsure = np.flatnonzero((least != most)[cells])
    found[unsure] = view.steps(places[unsure], below)
    return found


def _sum_of_at_most(votes: IntArray, k: int) -> IntArray:
    """The sum of votes ``[records, labels]``; of more than k, as much as k records of their mean."""
    total: IntArray = votes.sum(axis=0)
    return total if len(votes) <= k else total * k // len(votes)


@register
class NearestRecords(PartyKind[CountNearest]):
    """Answers `CountNearest`."""

    question = CountNearest

    @cached_property
    def records(self) -> SampledRecords:
        """The records, looked at when they are first asked."""
        return SampledRecords(self.own.examples, self.own.task.inputs, self.own.key, self.own.device)

    def validate(self, question: CountNearest) -> None:
        check_classes(self.own.task, question.classes)
        dimensions(question.features, self.own.task.inputs)

    def compute(self, question: CountNearest, asked: Asked) -> IntArray:
        return self.records.counts(asked.run_id, question, self.own.inputs_of(question.inputs))
