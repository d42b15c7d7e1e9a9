"""A pool is held when every byte of it is here and its digest is its name, and not before."""

import gc
import multiprocessing
import os
import time
from pathlib import Path

import numpy as np
import pytest
from support.files import files_no_longer_than
from support.pools import chunks

from collegium.data import PoolStore, array_spec
from collegium.data.pools import ABANDONED_AFTER_S
from collegium.data.values import ArraySpec, PoolChunk
from collegium.errors import PoolMismatch, StorageError
from collegium.limits import MAX_CHUNK_BYTES

POOL = np.random.default_rng(0).integers(0, 256, (5, MAX_CHUNK_BYTES // 2), dtype=np.uint8)
SPEC = array_spec(POOL)


@pytest.fixture(params=["memory", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> PoolStore:
    return PoolStore(None if request.param == "memory" else tmp_path / "pools")


def test_a_pool_arrives_in_pieces_and_is_then_held(store: PoolStore) -> None:
    pieces = list(chunks(POOL, SPEC))
    received = []
    for piece in pieces:
        assert not store.holds(SPEC)
        received.append(store.accept(piece).received_bytes)
    assert received == [MAX_CHUNK_BYTES, 2 * MAX_CHUNK_BYTES, POOL.nbytes]
    assert store.holds(SPEC)
    assert store.state(SPEC).complete
    assert np.array_equal(store.open(SPEC.sha256), POOL)


def test_only_so_many_pools_are_kept_and_only_two_are_on_their_way(
    store: PoolStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collegium.data.pools.MAX_POOLS", 3)
    small = [np.full((4, 3), number, dtype=np.uint8) for number in range(6)]
    for x in small:
        for piece in chunks(x, array_spec(x)):
            store.accept(piece)
    assert [store.holds(array_spec(x)) for x in small] == [False] * 3 + [True] * 3
    begun = [np.full_like(POOL, number) for number in range(4)]
    first = [next(chunks(x, array_spec(x))) for x in begun]
    for piece in first:
        store.accept(piece)
    assert [store.state(piece.pool).received_bytes > 0 for piece in first] == [False, False, True, True]
    for x in begun[2:]:
        for piece in chunks(x, array_spec(x)):
            store.accept(piece)
    assert store.holds(array_spec(begun[3]))


def test_pools_that_are_not_agreed_to_any_more_are_deleted(tmp_path: Path) -> None:
    specs = [PoolStore(tmp_path).put(np.full((4, 3), number, dtype=np.uint8)) for number in range(3)]
    kept = PoolStore(tmp_path, keep=[specs[1].sha256])
    assert [kept.holds(spec) for spec in specs] == [False, True, False]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_repeated_piece_and_a_gap_change_nothing(store: PoolStore) -> None:
    first, second, third = chunks(POOL, SPEC)
    assert store.accept(second).received_bytes == 0
    store.accept(first)
    assert store.accept(first).received_bytes == MAX_CHUNK_BYTES
    assert store.accept(third).received_bytes == MAX_CHUNK_BYTES
    store.accept(second)
    assert store.accept(third).complete
    assert store.accept(first).complete


def test_wrong_bytes_are_thrown_away_and_the_right_ones_taken_afterwards(store: PoolStore) -> None:
    *pieces, last = chunks(POOL, SPEC)
    for piece in pieces:
        store.accept(piece)
    flipped = bytes([last.data[0] ^ 1]) + last.data[1:]
    with pytest.raises(PoolMismatch, match="send it again"):
        store.accept(PoolChunk(SPEC, last.offset_bytes, flipped))
    assert store.state(SPEC).received_bytes == 0
    assert not store.holds(SPEC)
    for piece in chunks(POOL, SPEC):
        store.accept(piece)
    assert store.holds(SPEC)


def test_the_right_bytes_under_another_shape_are_not_the_pool(store: PoolStore) -> None:
    store.put(POOL)
    reshaped = ArraySpec(SPEC.sha256, SPEC.dtype, (SPEC.shape[1], SPEC.shape[0]))
    assert not store.holds(reshaped)
    with pytest.raises(PoolMismatch):
        for piece in chunks(POOL.reshape(reshaped.shape), reshaped):
            store.accept(piece)
    assert store.holds(SPEC)


def test_an_unknown_pool_cannot_be_opened(store: PoolStore) -> None:
    with pytest.raises(PoolMismatch, match="no pool"):
        store.open("0" * 64)


def test_a_pool_cannot_be_changed_by_those_who_opened_it(store: PoolStore) -> None:
    array = store.open(store.put(POOL).sha256)
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 1


def test_floats_keep_their_form(store: PoolStore) -> None:
    table = np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 3)
    opened = store.open(store.put(table).sha256)
    assert opened.dtype == np.float32
    assert np.array_equal(opened, table)


def test_a_pool_in_a_folder_is_mapped_and_found_by_the_next_process(tmp_path: Path) -> None:
    PoolStore(tmp_path).put(POOL)
    again = PoolStore(tmp_path)
    assert again.holds(SPEC)
    assert isinstance(again.open(SPEC.sha256), np.memmap)


def test_only_finished_files_lie_in_the_folder(tmp_path: Path) -> None:
    store = PoolStore(tmp_path)
    store.put(POOL)
    *_, last = chunks(POOL, SPEC)
    other = ArraySpec("0" * 64, SPEC.dtype, SPEC.shape)
    for piece in chunks(POOL, other):
        if piece.offset_bytes == last.offset_bytes:
            with pytest.raises(PoolMismatch):
                store.accept(piece)
        else:
            store.accept(piece)
    assert {path.name for path in tmp_path.iterdir()} == {f"{SPEC.sha256}.bin", f"{SPEC.sha256}.json"}


@pytest.mark.parametrize("damage", ["flipped", "cut", "longer"])
def test_a_damaged_file_is_noticed_and_the_pool_taken_anew(tmp_path: Path, damage: str) -> None:
    PoolStore(tmp_path).put(POOL)
    path = tmp_path / f"{SPEC.sha256}.bin"
    data = path.read_bytes()
    path.write_bytes({"flipped": data[:-1] + bytes([data[-1] ^ 1]), "cut": data[:-1], "longer": data + b"x"}[damage])
    store = PoolStore(tmp_path)
    with pytest.raises(PoolMismatch, match="damaged"):
        store.open(SPEC.sha256)
    assert not store.holds(SPEC)
    store.put(POOL)
    assert np.array_equal(store.open(SPEC.sha256), POOL)


def test_a_description_that_was_cut_short_means_that_the_pool_is_not_held(tmp_path: Path) -> None:
    PoolStore(tmp_path).put(POOL)
    (tmp_path / f"{SPEC.sha256}.json").write_text('{"dtype": "uint8", "sha', encoding="ascii")
    assert not PoolStore(tmp_path).holds(SPEC)


def test_what_a_dead_process_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    living = PoolStore(tmp_path)
    first, *rest = chunks(POOL, SPEC)
    living.accept(first)
    abandoned = tmp_path / f"{SPEC.sha256}.1-0.part"
    abandoned.write_bytes(b"x")
    then = time.time() - 2 * ABANDONED_AFTER_S
    os.utime(abandoned, (then, then))
    PoolStore(tmp_path)
    assert not abandoned.exists()
    for piece in rest:
        living.accept(piece)
    assert living.holds(SPEC)


def _receive(folder: Path, barrier: "multiprocessing.synchronize.Barrier") -> None:
    store = PoolStore(folder)
    for piece in chunks(POOL, SPEC):
        barrier.wait(30)
        store.accept(piece)
    assert np.array_equal(store.open(SPEC.sha256), POOL)


def test_processes_that_receive_one_pool_into_one_folder_at_once_all_hold_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(3)
    processes = [context.Process(target=_receive, args=(tmp_path, barrier)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        PoolStore(tmp_path / "file" / "pools")


def test_a_disk_that_takes_no_more_is_a_clear_error_and_the_transfer_starts_over(tmp_path: Path) -> None:
    store = PoolStore(tmp_path)
    first, second, _ = chunks(POOL, SPEC)
    store.accept(first)
    with files_no_longer_than(MAX_CHUNK_BYTES + 1000), pytest.raises(StorageError, match="File too large"):
        store.accept(second)
    assert store.state(SPEC).received_bytes == 0
    for piece in chunks(POOL, SPEC):
        store.accept(piece)
    assert store.holds(SPEC)


def test_half_a_pool_that_was_taken_away_on_its_way_is_never_taken_for_a_pool(tmp_path: Path) -> None:
    store = PoolStore(tmp_path)
    first, *rest = chunks(POOL, SPEC)
    store.accept(first)
    (arriving,) = tmp_path.glob("*.part")
    arriving.unlink()  # as another process does to what it takes for abandoned
    with pytest.raises(StorageError, match="keep pools in"):
        store.accept(rest[0])
    assert not store.state(SPEC).received_bytes
    for piece in (first, *rest):
        store.accept(piece)
    assert np.array_equal(store.open(SPEC.sha256), POOL)


def test_a_store_without_a_folder_leaves_none_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = PoolStore(None)
    opened = store.open(store.put(POOL).sha256)
    assert list(tmp_path.glob("*/*.bin"))
    del store
    gc.collect()
    assert not list(tmp_path.iterdir())
    assert np.array_equal(opened, POOL), "whoever has a pool open keeps it"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(StorageError, match="temporary folder"):
        PoolStore(None)
