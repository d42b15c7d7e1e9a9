"""Features of records between rounds of class sums: in memory, on the disk, or computed again; the sums are equal."""

import contextlib
import logging
import tempfile
from pathlib import Path

import numpy as np
import pytest
from support.sums_scene import POOL, SPEC, TASK, records

from collegium.models.codes import Weights
from collegium.models.kernels import KernelMap
from collegium.parties.kinds import class_sums
from collegium.parties.kinds.class_sums import RecordsOfClasses

KERNEL = KernelMap.of_pool(SPEC, POOL, TASK.inputs)
WEIGHTS = [None, *(Weights.of(np.random.default_rng(n).normal(size=(KERNEL.dimensions, 3))) for n in range(2))]
OWN = records(1, 5000)
NEEDED = 4 * len(OWN) * KERNEL.dimensions


def rounds(disk_bytes: int) -> tuple[list[np.ndarray], RecordsOfClasses]:
    own = RecordsOfClasses(OWN, TASK, disk_bytes=disk_bytes)
    return [own.sums(KERNEL, weights) for weights in WEIGHTS], own


def held(folder: Path) -> bool:
    """Whether this process holds a file of the folder open that has no name any more."""
    links = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            links.append(str(link.readlink()))
    return any(name.startswith(str(folder)) and name.endswith("(deleted)") for name in links)


def test_sums_are_equal_wherever_features_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    in_memory, _ = rounds(disk_bytes=0)
    monkeypatch.setattr(class_sums, "_MOST_KEPT", 0)
    again, _ = rounds(disk_bytes=NEEDED - 1)
    assert not held(tmp_path), "the disk may not hold so much"
    on_disk, own = rounds(disk_bytes=NEEDED)
    assert held(tmp_path) and list(tmp_path.iterdir()) == []
    np.testing.assert_array_equal(again, in_memory)
    np.testing.assert_array_equal(on_disk, in_memory)
    del own
    assert not held(tmp_path)


def test_features_that_the_disk_does_not_take_are_computed_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    in_memory, _ = rounds(disk_bytes=0)
    monkeypatch.setattr(class_sums, "_MOST_KEPT", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with caplog.at_level(logging.WARNING):
        without, _ = rounds(disk_bytes=NEEDED)
    np.testing.assert_array_equal(without, in_memory)
    assert [record.event for record in caplog.records] == ["features-not-kept"]
