"""Class sums of a run: paid for, asked once, made noisy, kept, and turned into labels of the whole pool.

The noisy sums are kept in the run's folder under the name of what they answer. A run that is started again finds them
there and asks nobody.
"""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from collegium.coordinator.rounds.round_requests import SumRequests
from collegium.coordinator.run.labeller import NoiseStrategy
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


def kept_sums(path: Path, requests: SumRequests) -> NoisySums | None:
    """The noisy sums in the file, None where there are none or they answer another question.

    Raises
    ------
    StorageError
        If the file is damaged: what it held was paid for.
    """
    if not path.exists():
        return None
    try:
        arrays, about = load_arrays(path, _KIND, {"values": np.int64})
    except StorageError as error:
        raise StorageError(f"{error}; restore it from a copy") from error
    if about["question"] != requests.question:
        return None
    contributions = _contributions(requests, about["answered"])
    return NoisySums(requests.spec, arrays["values"], float(about["noise"]), contributions)


def released_sums(
    path: Path, requests: SumRequests, mechanism: Mechanism, noise: NoiseStrategy, ask: Ask, spend: Callable[[], None]
) -> NoisySums:
    """Ask, see to the noise and keep the result in the file; the sums were paid for before.

    Parameters
    ----------
    mechanism : as it runs; where its stage has a share, the parties' noise is in the sum already.
    noise : what draws the noise elsewhere.
    spend : spends the charge, before there are noisy sums that anybody may see. Until then a round may fail and be
        asked again under the same charge.
    """
    drawn_here = mechanism.stages[0].share is None
    values, answered = ask(None if drawn_here else spend)
    scale = noise_on_entries(mechanism, answered)
    if drawn_here:
        spend()
        source = SystemNoise() if noise.seed is None else SeededNoise(noise.seed)
        values = values + np.rint(source.gaussian(scale, values.shape)).astype(np.int64)
    about = {"question": requests.question, "noise": scale, "answered": answered}
    with replacing(path, "keep the class sums") as beside:
        save_arrays(beside, _KIND, {"values": values}, **about)
    return NoisySums(requests.spec, values, scale, _contributions(requests, answered))


def noise_on_entries(mechanism: Mechanism, answered: int) -> float:
    """The standard deviation of the noise on every entry of a sum to which ``answered`` parties added."""
    share = mechanism.stages[0].share
    if share is not None:
        return share.sigma_share * math.sqrt(answered)  # more parties than needed add more noise than charged
    return mechanism.noise_votes * math.sqrt(bound_squared(int(mechanism.parameters()["classes"])))


def _contributions(requests: SumRequests, answered: int) -> float | None:
    return answered * PARTY_CONTRIBUTIONS if requests.per_party else None
