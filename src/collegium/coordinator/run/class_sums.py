"""Class sums of a run: each paid for, asked once, made noisy and kept; labels of the whole pool follow from the last.

The noisy sums are kept beside the ledger that paid for them, under the name of what they answer. A run that is started
again finds them there and asks nobody. So are the networks whose features a second sum is taken under, by the name of
the first sum. A charge names its question: with other networks a second sum is another release, and is paid as such.
"""

import hashlib
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from collegium.coordinator.rounds.round_requests import SumRequests
from collegium.coordinator.run.surroundings import RunSetup
from collegium.errors import DataError, StorageError
from collegium.models.arrays import load_arrays, save_arrays
from collegium.models.kernel_student import PARTY_CONTRIBUTIONS, NoisySums
from collegium.whole_files import read_whole, replacing, write_whole
from collegium_accounting.mechanisms import IntArray, Mechanism, SeededNoise, SystemNoise
from collegium_accounting.mechanisms.class_sums import bound_squared

_KIND = "class sums"

Ask = Callable[[SumRequests, Callable[[], None] | None], tuple[IntArray, int]]
"""Puts a request to the parties, with what is called before a sum that they made noisy is opened; returns the sum,
``[length]``, and how many parties answered."""


class SumsOfRun:
    """The class sums of one run: one, or a second under features that networks learned from the first.

    Parameters
    ----------
    requests : for the first sum.
    networks_of : returns the file of networks that learn what these sums say of the pool. Where it is empty, as too
        much of that is noise, the second sum is under the same map, and the mean of both takes its place.
    """

    def __init__(self, setup: RunSetup, requests: SumRequests, networks_of: Callable[[NoisySums], bytes]) -> None:
        self._setup, self._requests, self._networks_of = setup, requests, networks_of
        self._rounds, self._held = int(setup.config.sums.rounds), list[NoisySums]()

    @property
    def held(self) -> list[NoisySums]:
        """Those that were released, in order; labels and student follow from the last of them.

        Raises StorageError where a file is damaged: what it held was paid for.
        """
        while len(self._held) < self._rounds and self._may_ask(learn=False) and (sums := self._kept()) is not None:
            self._held.append(sums)
        return self._held

    @property
    def lacking(self) -> int:
        """How many sums of the run were not released."""
        return self._rounds - len(self.held)

    def take(self, pay: Callable[[str, int], int], ask: Ask, spend: Callable[[int], None]) -> None:
        """Have the sums that were not released yet.

        Parameters
        ----------
        pay : returns the charge for a question, beside which so many more must fit; see `Labeller.pay_for_sum`.
        spend : spends that charge, before there are noisy sums that anybody may see. Until then a round may fail and
            be asked again under the same charge.

        Raises
        ------
        BudgetExceeded, QuorumNotReached
            Where the budget or the parties do not take a sum; those before it are kept.
        DataError
            If networks can learn nothing from the first sum.
        """
        while self.lacking and self._may_ask(learn=True):
            if (sums := self._kept()) is None:
                paid = pay(self._requests.question, self.lacking - 1)
                sums = self._released(partial(ask, self._requests.paid_by(paid)), partial(spend, paid))
            self._held.append(sums)

    @property
    def _file(self) -> Path:
        """Of the sum that comes next, beside the ledger that pays for it, as runs may share both; public."""
        asked = hashlib.sha256(self._requests.question.encode()).hexdigest()
        return self._setup.ledger_file.with_name(f"class-sums-{asked[:16]}.safetensors")

    def _may_ask(self, *, learn: bool) -> bool:
        """Have the request for the sum that comes next; False where networks must ``learn`` first and are not to.

        What they learned is on the disk before anybody is asked about it, so that the question stays the same.
        """
        if not self._held or self._requests.number > 1:
            return True
        first = hashlib.sha256(self._requests.question.encode() + self._held[0].values.tobytes()).hexdigest()
        file = self._file.with_name(f"class-sums-network-{first[:16]}.safetensors")
        if not file.exists() and learn:
            write_whole(file, self._networks_of(self._held[0]))
        if not file.exists():
            return False
        second = self._requests.under(read_whole(file))
        try:
            _ = second.question
        except (StorageError, DataError) as error:
            raise StorageError(f"{file.name}: {error}; restore it from a copy") from error
        self._requests = second
        return True

    def _kept(self) -> NoisySums | None:
        """The noisy sums in the file, None where there are none or they answer another question."""
        if not self._file.exists():
            return None
        try:
            arrays, about = load_arrays(self._file, _KIND, {"values": np.int64})
        except StorageError as error:
            raise StorageError(f"{error}; restore it from a copy, or remove it: it is then paid anew") from error
        if about["question"] != self._requests.question:
            return None
        return self._sums(arrays["values"], float(about["noise"]), about["answered"])

    def _sums(self, values: IntArray, noise: float, answered: int) -> NoisySums:
        contributions = answered * PARTY_CONTRIBUTIONS if self._requests.per_party else None
        sums = NoisySums(self._requests.spec, values, noise, contributions)
        return self._held[0].mean_with(sums) if self._held and self._requests.network is None else sums

    def _released(
        self, ask: Callable[[Callable[[], None] | None], tuple[IntArray, int]], spend: Callable[[], None]
    ) -> NoisySums:
        """Ask, see to the noise and keep the result in the file; the sums were paid for before."""
        mechanism, requests, seed = self._setup.mechanism, self._requests, self._setup.noise.seed
        drawn_here = mechanism.stages[0].share is None
        with replacing(self._file, "keep the class sums") as beside:
            # A full disk is noticed now, with room for what is not known yet, and not when the charge is spent.
            room = np.zeros(int(mechanism.parameters()["classes"]) * requests.spec.dimensions + 512, dtype=np.int64)
            save_arrays(beside, _KIND, {"values": room}, question=requests.question)
            values, answered = ask(None if drawn_here else spend)
            scale = noise_on_entries(mechanism, answered)
            if drawn_here:
                spend()
                # With a seed, each sum has a noise of its own.
                source = SystemNoise() if seed is None else SeededNoise(seed + len(self._held) * 2**64)
                values = values + np.rint(source.gaussian(scale, values.shape)).astype(np.int64)
            about = {"question": requests.question, "noise": scale, "answered": answered}
            save_arrays(beside, _KIND, {"values": values}, **about)
        return self._sums(values, scale, answered)


def noise_on_entries(mechanism: Mechanism, answered: int) -> float:
    """The standard deviation of the noise on every entry of a sum to which ``answered`` parties added."""
    share = mechanism.stages[0].share
    if share is not None:
        return share.sigma_share * math.sqrt(answered)  # more parties than needed add more noise than charged
    return mechanism.noise_votes * math.sqrt(bound_squared(int(mechanism.parameters()["classes"])))
