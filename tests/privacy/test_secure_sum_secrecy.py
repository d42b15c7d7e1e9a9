"""What the coordinator receives in a round: uniform noise and the total, and nothing of a single vote."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.local_sums import LocalRound, local_round, run_sum

from collegium.protocol.secure_sum import Phase
from collegium.protocol.secure_sum import keys as sum_keys

CHI_SQUARE_255_AT_1E_6 = 377.1
"""Quantile 1 − 1e-6 of χ² with 255 degrees of freedom."""

LENGTH = 20_000


def received(made: LocalRound, silent: str | None = None) -> dict[str, dict[Phase, bytes]]:
    """Every byte that the coordinator receives in a round, by party and phase."""
    seen: dict[str, dict[Phase, bytes]] = {name: {} for name in made.setup.names}
    while made.coordinator.phase is not Phase.DONE:
        phase = made.coordinator.phase
        for name, request in made.coordinator.requests().items():
            if name == silent and phase >= Phase.MASK:
                continue
            reply = made.parties[name].handle(request)
            seen[name][phase] = reply.SerializeToString()
            made.coordinator.accept(name, reply)
        made.coordinator.close_phase()
    return seen


def masked_vectors(made: LocalRound) -> list[bytes]:
    vectors = []
    while made.coordinator.phase is not Phase.SIGN:
        for name, request in made.coordinator.requests().items():
            reply = made.parties[name].handle(request)
            vectors.append(reply.input_masked.vector)
            made.coordinator.accept(name, reply)
        made.coordinator.close_phase()
    return [vector for vector in vectors if vector]


def chi_square(data: bytes) -> float:
    """Of the bytes against the uniform law; 255 degrees of freedom."""
    counts = np.bincount(np.frombuffer(data, dtype=np.uint8), minlength=256)
    expected = len(data) / 256
    return float(((counts - expected) ** 2 / expected).sum())


def canary_votes(parties: int) -> np.ndarray:
    """Votes in a pattern that is easy to find: party i repeats 0x4200 + i."""
    return np.repeat(0x4200 + np.arange(parties)[:, None], 64, axis=1)


def shows_a_canary(data: bytes, votes: np.ndarray) -> bool:
    """Whether any four consecutive votes of a party occur, raw in 16, 32 or 64 bits of either byte order."""
    return any(
        np.full(4, vote).astype(word).tobytes() in data
        for vote in np.unique(votes)
        for word in ("<u2", ">u2", "<u4", ">u4", "<i8", ">i8")
    )


@pytest.fixture
def no_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: every mask is zero. Sums stay exact, so that only a privacy test can notice."""
    monkeypatch.setattr(sum_keys, "mask", lambda key, length, word: np.zeros(length, dtype=word))


@pytest.fixture
def short_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: masks drawn below 10,000 instead of over the whole ring, as a modulus of the wrong size gives."""
    draw = sum_keys.mask
    monkeypatch.setattr(sum_keys, "mask", lambda *args: draw(*args) % np.array(10_000, dtype=args[2]))


@pytest.mark.parametrize("high", [1, 60_000])
def test_masked_vectors_are_uniform(high: int) -> None:
    """χ² over the bytes of each of 4 vectors of 20,000 entries; α = 1e-6 each."""
    votes = np.zeros((4, LENGTH), dtype=np.int64)
    assert all(chi_square(vector) < CHI_SQUARE_255_AT_1E_6 for vector in masked_vectors(local_round(votes, 0, high)))


@pytest.mark.usefixtures("no_masks")
def test_the_uniformity_test_notices_missing_masks() -> None:
    votes = np.zeros((4, LENGTH), dtype=np.int64)
    assert all(chi_square(vector) > CHI_SQUARE_255_AT_1E_6 for vector in masked_vectors(local_round(votes, 0, 1)))


@pytest.mark.usefixtures("short_masks")
def test_the_uniformity_test_notices_masks_that_do_not_fill_the_ring() -> None:
    votes = np.zeros((3, LENGTH), dtype=np.int64)
    assert any(chi_square(vector) > CHI_SQUARE_255_AT_1E_6 for vector in masked_vectors(local_round(votes, 0, 60_000)))


@pytest.mark.parametrize("silent", [None, "party-0002"])
def test_the_coordinator_receives_no_byte_of_a_single_vote(silent: str | None) -> None:
    votes = canary_votes(5)
    made = local_round(votes, 0, 0x4300)
    seen = received(made, silent)
    left = [i for i in range(5) if made.setup.names[i] != silent]
    assert np.array_equal(made.coordinator.result.total, votes[left].sum(axis=0))
    assert not any(shows_a_canary(data, votes) for phases in seen.values() for data in phases.values())


@pytest.mark.usefixtures("no_masks")
def test_the_canary_test_notices_missing_masks() -> None:
    votes = canary_votes(5)
    made = local_round(votes, 0, 0x4300)
    seen = received(made)
    assert np.array_equal(made.coordinator.result.total, votes.sum(axis=0))
    assert all(shows_a_canary(phases[Phase.MASK], votes) for phases in seen.values())


def blocks(made: LocalRound) -> set[bytes]:
    """All 16-byte windows of what the coordinator receives, but for the set-up's own digest."""
    found = set()
    for phases in received(made).values():
        for data in phases.values():
            data = data.replace(made.setup.digest, b"")
            found.update(data[start : start + 16] for start in range(len(data) - 15))
    return found


def test_two_runs_with_the_same_votes_share_nothing() -> None:
    """No 16 bytes in common; by chance this fails with probability below 2^-80."""
    votes = np.ones((4, 32), dtype=np.int64)
    first = local_round(votes, 0, 1)
    second = local_round(votes, 0, 1, round_id="round-2", identities=first.identities)
    assert not blocks(first) & blocks(second)


def test_two_runs_share_nothing_even_under_one_round_id() -> None:
    votes = np.ones((4, 32), dtype=np.int64)
    first = local_round(votes, 0, 1)
    assert not blocks(first) & blocks(local_round(votes, 0, 1, identities=first.identities))


def test_the_comparison_of_runs_notices_reused_randomness() -> None:
    votes = np.ones((4, 32), dtype=np.int64)

    def stuck(size: int) -> bytes:
        return bytes(i % 251 for i in range(size))

    first = local_round(votes, 0, 1, random_bytes=stuck)
    second = local_round(votes, 0, 1, round_id="round-2", identities=first.identities, random_bytes=stuck)
    assert blocks(first) & blocks(second)


def test_the_total_minus_everyone_elses_votes_is_all_a_coalition_learns() -> None:
    """A dropped party's vector stays masked by its self seed even when its mask key has been opened."""
    votes = canary_votes(5)
    made = local_round(votes, 0, 0x4300)
    late: dict[str, bytes] = {}
    while made.coordinator.phase is not Phase.DONE:
        for name, request in made.coordinator.requests().items():
            if name == "party-0002" and made.coordinator.phase is Phase.MASK:
                # Its vector arrives after it was declared dropped.
                late[name] = made.parties[name].handle(request).input_masked.vector
                continue
            if name == "party-0002" and made.coordinator.phase > Phase.MASK:
                continue
            made.coordinator.accept(name, made.parties[name].handle(request))
        made.coordinator.close_phase()
    word = made.setup.word
    vector = np.frombuffer(late["party-0002"], dtype=word).copy()
    removed = np.zeros_like(vector)
    made.coordinator.opening._remove_pairwise_masks(removed, 2, {0, 1, 3, 4})
    # Pairwise masks are gone from the late vector now; the self mask is not.
    assert not shows_a_canary((vector + removed).astype(word).tobytes(), votes)
    assert not shows_a_canary((vector - removed).astype(word).tobytes(), votes)


def test_the_result_is_the_sum_when_nothing_is_planted() -> None:
    votes = np.random.default_rng(0).integers(0, 2, (7, 50))
    made = local_round(votes, 0, 1)
    assert np.array_equal(run_sum(made.coordinator, made.parties).total, votes.sum(axis=0))
