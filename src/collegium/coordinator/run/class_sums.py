"""Class sums of a run: each paid for, asked once, made noisy and kept; labels of the whole pool follow from the last.

The noisy sums are kept beside the ledger that paid for them, under the name of what they answer. A run that is started
again finds them there and asks nobody. So is the network whose features a second sum is taken under: it is in the file
before the second question is asked, so that the question stays the same. The name of a charge holds the question:
with another network, a second sum is another release and is paid as such.
"""

import hashlib
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.rounds.round_requests import SumRequests
from collegium.coordinator.run.labeller import NoiseStrategy
from collegium.coordinator.run.surroundings import RunSetup
from collegium.errors import StorageError
from collegium.models.arrays import load_arrays, save_arrays
from collegium.models.kernel_student import PARTY_CONTRIBUTIONS, NoisySums
from collegium.privacy.mechanisms import IntArray, Mechanism, SeededNoise, SystemNoise
from collegium.privacy.mechanisms.class_sums import bound_squared
from collegium.whole_files import replacing

_KIND = "class sums"

Ask = Callable[[Callable[[], None] | None], tuple[IntArray, int]]
"""Puts the round to the parties, with what is called before a sum that they made noisy is opened; returns the sum,
``[length]``, and how many parties answered."""


class SumsOfRun:
    """The class sums of one run: one, or a second under features that networks learned from the first.

    Parameters
    ----------
    requests : for the first sum.
    networks_of : returns the file of networks that learn what these sums say of the pool.
    """

    def __init__(self, setup: RunSetup, requests: SumRequests, networks_of: Callable[[NoisySums], bytes]) -> None:
        self._setup, self._requests, self._networks_of = setup, requests, networks_of
        self._rounds, folder = int(setup.config.sums.rounds), setup.folder
        self._first, self._second = (
            setup.ledger_file.with_name(file.name) for file in (folder.class_sums, folder.second_sums)
        )
        self._held: list[NoisySums] = []

    @property
    def held(self) -> list[NoisySums]:
        """Those that were released, in order. Labels and student follow from the last of them.

        Raises StorageError where a file of them is damaged.
        """
        if not self._held and (first := kept_sums(self._first, self._requests)) is not None:
            self._held.append(first)
        if len(self._held) == 1 < self._rounds and (network := self._network()) is not None:
            second = kept_sums(self._second, self._requests.under(network))
            self._held += [] if second is None else [second]
        return self._held

    @property
    def lacking(self) -> int:
        """How many sums of the run were not released."""
        return self._rounds - len(self.held)

    def take(
        self,
        pay: Callable[[str, int], int],
        ask: Callable[[SumRequests, Callable[[], None] | None], tuple[IntArray, int]],
        spend: Callable[[int], None],
    ) -> None:
        """Have the sums that were not released yet.

        Parameters
        ----------
        pay : returns the charge for a question, beside which so many more must fit the budget; see `Labeller`.
        ask : puts a request to the parties; see `QueryRunner.ask_sum`.
        spend : spends that charge.

        Raises
        ------
        BudgetExceeded, QuorumNotReached
            Where the budget or the parties do not take a sum; those before it are kept.
        DataError
            If the networks can learn nothing from the first sum.
        """
        setup, seed = self._setup, self._setup.noise.seed
        while self.lacking:
            path, requests, arrays, about = self._first, self._requests, dict[str, NDArray[Any]](), dict[str, str]()
            if number := len(self._held):
                network = self._network() or self._learned()
                path, requests = self._second, self._requests.under(network)
                arrays, about = self._beside(network)
            paid = pay(requests.question, self.lacking - 1)
            noise = NoiseStrategy(None if seed is None else seed + number * 2**64)
            asking, spending = partial(ask, requests.paid_by(paid)), partial(spend, paid)
            sums = released_sums(path, requests, setup.mechanism, noise, asking, spending, arrays, about)
            self._held.append(sums)

    def _network(self) -> bytes | None:
        """The network that learned from the first sum, as it was kept; None where there is none."""
        if not self._second.exists():
            return None
        arrays, about = _loaded(self._second, second=True)
        network = arrays["network"].tobytes()
        if about["first"] != self._of_first:
            return None  # for another study
        if about["network"] != hashlib.sha256(network).hexdigest():
            raise StorageError(f"{self._second.name} holds a damaged network; restore it from a copy")
        return network

    def _learned(self) -> bytes:
        """A network that learns from the first sum, kept before anybody is asked about it."""
        network = self._networks_of(self._held[0])
        arrays, about = self._beside(network)
        nothing = {"values": np.empty(0, dtype=np.int64)}
        with replacing(self._second, "keep the network for class sums") as beside:
            save_arrays(beside, _KIND, arrays | nothing, question="", **about)
        return network

    def _beside(self, network: bytes) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
        """What the file of the second sum holds beside the sum."""
        about = {"first": self._of_first, "network": hashlib.sha256(network).hexdigest()}
        return {"network": np.frombuffer(network, dtype=np.uint8)}, about

    @property
    def _of_first(self) -> str:
        """Names the first sum as it was released."""
        return hashlib.sha256(self._requests.question.encode() + self._held[0].values.tobytes()).hexdigest()


def kept_sums(path: Path, requests: SumRequests) -> NoisySums | None:
    """The noisy sums in the file, None where there are none or they answer another question.

    Raises
    ------
    StorageError
        If the file is damaged: what it held was paid for.
    """
    if not path.exists():
        return None
    arrays, about = _loaded(path, second=requests.network is not None)
    if about["question"] != requests.question:
        return None
    contributions = _contributions(requests, about["answered"])
    return NoisySums(requests.spec, arrays["values"], float(about["noise"]), contributions)


def _loaded(path: Path, *, second: bool) -> tuple[dict[str, NDArray[Any]], Any]:
    held: dict[str, type[np.generic]] = {"values": np.int64, "network": np.uint8} if second else {"values": np.int64}
    try:
        return load_arrays(path, _KIND, held)
    except StorageError as error:
        raise StorageError(f"{error}; restore it from a copy") from error


def released_sums(
    path: Path,
    requests: SumRequests,
    mechanism: Mechanism,
    noise: NoiseStrategy,
    ask: Ask,
    spend: Callable[[], None],
    arrays: Mapping[str, NDArray[Any]] = {},
    about: Mapping[str, Any] = {},
) -> NoisySums:
    """Ask, see to the noise and keep the result in the file; the sums were paid for before.

    Parameters
    ----------
    mechanism : as it runs; where its stage has a share, the parties' noise is in the sum already.
    noise : what draws the noise elsewhere.
    spend : spends the charge, before there are noisy sums that anybody may see. Until then a round may fail and be
        asked again under the same charge.
    arrays, about : what the file holds beside the sums, and what it says of that.
    """
    drawn_here = mechanism.stages[0].share is None
    values, answered = ask(None if drawn_here else spend)
    scale = noise_on_entries(mechanism, answered)
    if drawn_here:
        spend()
        source = SystemNoise() if noise.seed is None else SeededNoise(noise.seed)
        values = values + np.rint(source.gaussian(scale, values.shape)).astype(np.int64)
    about = {**about, "question": requests.question, "noise": scale, "answered": answered}
    with replacing(path, "keep the class sums") as beside:
        save_arrays(beside, _KIND, {**arrays, "values": values}, **about)
    return NoisySums(requests.spec, values, scale, _contributions(requests, answered))


def noise_on_entries(mechanism: Mechanism, answered: int) -> float:
    """The standard deviation of the noise on every entry of a sum to which ``answered`` parties added."""
    share = mechanism.stages[0].share
    if share is not None:
        return share.sigma_share * math.sqrt(answered)  # more parties than needed add more noise than charged
    return mechanism.noise_votes * math.sqrt(bound_squared(int(mechanism.parameters()["classes"])))


def _contributions(requests: SumRequests, answered: int) -> float | None:
    return answered * PARTY_CONTRIBUTIONS if requests.per_party else None
