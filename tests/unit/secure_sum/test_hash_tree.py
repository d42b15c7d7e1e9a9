"""A root stands for one list of entries, and a proof for those that it shows, whatever their number."""

from __future__ import annotations

import random

import pytest

from collegium.protocol.secure_sum.errors import MalformedMessage
from collegium.protocol.secure_sum.hash_tree import HASH_BYTES, HashTree, root_of


def entries_of(size: int) -> list[bytes]:
    return [number.to_bytes(4, "big") for number in range(size)]


@pytest.mark.parametrize("size", range(1, 18))
def test_every_choice_of_entries_leads_to_the_root(size: int) -> None:
    source, entries = random.Random(size), entries_of(size)
    tree = HashTree(entries)
    for count in range(1, size + 1):
        shown = sorted(source.sample(range(size), count))
        proof = tree.proof(shown)
        assert len(proof) <= HASH_BYTES * count * (size - 1).bit_length()
        assert root_of({i: entries[i] for i in shown}, size, proof) == tree.root


def test_another_entry_another_position_and_another_hash_lead_elsewhere() -> None:
    entries = entries_of(11)
    tree, shown = HashTree(entries), [2, 7, 10]
    proof = tree.proof(shown)
    held = {i: entries[i] for i in shown}
    changed = bytes([proof[0] ^ 1]) + proof[1:]
    for wrong in (held | {7: b"else"}, {2: entries[2], 7: entries[10], 10: entries[7]}):
        assert root_of(wrong, 11, proof) != tree.root
    assert root_of(held, 11, changed) != tree.root


def test_a_node_cannot_be_shown_as_an_entry() -> None:
    """Else a list of half as many entries, which are pairs of hashes, would have the same root."""
    tree = HashTree(entries_of(4))
    pairs = [tree._levels[0][i] + tree._levels[0][i + 1] for i in (0, 2)]
    assert HashTree(pairs).root != tree.root


@pytest.mark.parametrize("cut", [-HASH_BYTES, -1, 1, HASH_BYTES])
def test_a_proof_of_another_length_is_refused(cut: int) -> None:
    entries = entries_of(9)
    proof = HashTree(entries).proof([4])
    with pytest.raises(MalformedMessage):
        root_of({4: entries[4]}, 9, proof[:cut] if cut < 0 else proof + bytes(cut))
