"""Counts of sampled records around public inputs, by distance and by class, and the party's own coins that sample them.

A coin is a keyed function of the question and of the person alone, known to nobody outside. So a question that comes
again finds the same sample and cannot be averaged, another question (another stage, ledger, run, input or features) a
fresh one, and a person who comes or goes changes nobody else's coin.
"""

import hmac
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from collegium.data import Examples
from collegium.data.features import dimensions
from collegium.data.pools import contents_of
from collegium.data.task import Inputs
from collegium.parties.gate import pool_asked
from collegium.parties.handlers import VotesHandler
from collegium.parties.neighbours.search import DistanceView, Searches
from collegium.parties.teachers.splits import derive_key
from collegium.parties.terms import check_task, mechanism_of
from collegium.protocol.messages import Request
from collegium.protocol.requests import CountNearest
from collegium_accounting.multilabel import clipped_votes, held_in
from collegium_accounting.units import IntArray

_NAME_BYTES = 16


def sample_names(run_id: str, body: CountNearest, x: NDArray[Any]) -> list[bytes]:
    """What names the sample of each of the inputs ``x``: all that a label is released under, and its content.

    Neither the round nor distances: the counts by distance and by class of one query are about the same people. Nor
    where the input stands in which pool: an input that stands in several places has one sample.
    """
    common = "|".join(
        (
            "collegium-sample-v2",
            run_id,
            body.ledger_id,
            body.terms.stage,
            body.terms.mechanism,
            repr(sorted(body.terms.parameters.items())),
            body.features.digest(),
        )
    )
    return [common.encode() + b"|" + content for content in contents_of(x)]


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
        for name, view in zip(sample_names(run_id, body, x), views, strict=True):
            yield view, self._one_each(view, self._sampler.drawn(name, rate))

    def counts(self, run_id: str, body: CountNearest, x: NDArray[Any], classes: int) -> IntArray:
        """What `CountNearest` asks, shape ``[queries, body.width(classes)]``."""
        counts = np.empty((len(x), body.width(classes)), dtype=np.int64)
        votes = None if body.tau is None else clipped_votes(held_in(self.labels, classes), body.tau)
        for row, (view, sampled) in enumerate(self.samples(run_id, body, x)):
            intervals = view.intervals(sampled, body.edges_squared[row])
            if body.by_class and votes is not None:
                parts = (votes[sampled[intervals == place]] for place in (0, 1))
                counts[row] = np.concatenate([_sum_of_at_most(part, body.k) for part in parts])
                continue
            if body.by_class:
                inside = intervals < 2
                intervals = intervals[inside] * classes + self.labels[sampled[inside]]
            counts[row] = np.bincount(intervals, minlength=counts.shape[1])
        # Of more than k of one kind, the k-th is the last that can count; the range of a sum is public.
        return np.minimum(counts, body.highest)

    def _one_each(self, view: DistanceView, drawn: NDArray[np.bool_]) -> IntArray:
        person = self._sampler.person
        rows = np.flatnonzero(drawn[person])
        shared = rows[self._shared[rows]]
        if not len(shared):
            return rows
        order = np.lexsort((self.labels[shared], view.exact(shared), person[shared]))
        _, first = np.unique(person[shared][order], return_index=True)
        return np.concatenate([rows[~self._shared[rows]], shared[order][first]])


def _sum_of_at_most(votes: IntArray, k: int) -> IntArray:
    """The sum of votes ``[records, labels]``; of more than k, as much as k records of their mean."""
    total: IntArray = votes.sum(axis=0)
    return total if len(votes) <= k else total * k // len(votes)


class CountNearestHandler(VotesHandler[CountNearest, Callable[[], SampledRecords]]):
    """Answers `CountNearest`."""

    def _answer(self, request: Request, body: CountNearest) -> IntArray:
        check_task(mechanism_of(body), self._task)
        classes = len(self._task.classes)
        asked = pool_asked(self._pools, body.inputs, body.width(classes))[np.array(body.inputs.indices)]
        dimensions(body.features, self._task.inputs)  # raises for features that do not fit, before anything is counted
        records = self._voters()
        self._gate.check(request)
        return records.counts(request.run_id, body, asked, classes)
