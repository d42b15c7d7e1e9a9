"""The fuzz corpus of the secure sum, and a fixed number of its mutations, end in nothing but typed errors."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from secure_sum_targets import TARGETS, fuzz_reply

from collegium.protocol.secure_sum import CoordinatorSum

CORPUS = Path(__file__).parent / "corpus"
MUTATIONS_PER_SEED = 60


def seeds(target: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPUS / f"secure_sum_{target}").iterdir())]


def mutate(data: bytes, source: random.Random) -> bytes:
    """Flip, cut, repeat or insert a few bytes."""
    mutant = bytearray(data)
    for _ in range(source.randint(1, 4)):
        position = source.randrange(len(mutant) + 1)
        kind = source.randrange(4)
        if kind == 0 and position < len(mutant):
            mutant[position] ^= 1 << source.randrange(8)
        elif kind == 1:
            del mutant[position : position + source.randint(1, 40)]
        elif kind == 2:
            mutant[position:position] = mutant[position : position + source.randint(1, 40)]
        else:
            mutant[position:position] = source.randbytes(source.randint(1, 8))
    return bytes(mutant)


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_corpus_and_mutations_end_in_typed_errors_alone(target: str) -> None:
    source = random.Random(2026)
    found = seeds(target)
    assert len(found) >= 2
    for seed in found:
        assert TARGETS[target](seed), "a seed is accepted, so that its mutations reach behind the first check"
        for _ in range(MUTATIONS_PER_SEED):
            TARGETS[target](mutate(seed, source))


def test_a_parser_that_breaks_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: CoordinatorSum, index: int, message: object) -> None:
        raise IndexError

    monkeypatch.setattr(CoordinatorSum, "_take_advert", broken)
    with pytest.raises(IndexError):
        for seed in seeds("reply"):
            fuzz_reply(seed)
