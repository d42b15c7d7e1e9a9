"""One party whose records are larger than its memory need be: ``python -m benchmarks.large_party --records 10000000``.

Records of 64 numbers are written to an ``.npz`` file that is not compressed, block by block, or with ``--parquet`` a
table to a Parquet file, which the party reads in batches, whatever its size. A party then loads it,
answers for neighbours within a radius and sums classes under a kernel map, all in one process. With ``--rounds`` it
answers the default's rounds of class sums instead, under weights from the second on; with ``--keep`` it keeps the
records' features on the disk between them. Printed are CPU and wall seconds of each step, and two peaks: of the memory
that the process needs, and of what it holds with the pages of files, which the system takes back when others need room.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.usage import tree_memory_bytes
from collegium.coordinator.selection.kernel_choice import kernel_spec
from collegium.coordinator.settings.run_config import SumsConfig
from collegium.data import DataSource, PoolStore, load
from collegium.data.loading import files
from collegium.data.task import NumberColumn, TableInputs, Task, VectorInputs
from collegium.models.codes import Weights
from collegium.models.features import Features
from collegium.models.kernels import KernelSpec
from collegium.parties.party import Party, unrestricted
from collegium.parties.teachers.splits import simulated_key
from collegium.protocol.kinds.class_sums import SumClasses
from collegium.protocol.kinds.near_records import CastNeighbours
from collegium.protocol.messages import Request
from collegium.protocol.question import PoolRange, QuestionTerms
from collegium.protocol.replies import Failure
from collegium.protocol.requests import Ask

COLUMNS, CLASSES, LANDMARKS, QUERIES = 64, 10, 100, 40
_BLOCK = 2**17


class Blocks:
    """Labels, and by iteration the records around one centre per class, block by block."""

    def __init__(self, records: int, columns: int) -> None:
        self._generator = np.random.default_rng(0)
        self._centres = self._generator.random((CLASSES, columns), dtype=np.float32)
        self.labels = self._generator.integers(0, CLASSES, records)

    def __iter__(self) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
        for start in range(0, len(self.labels), _BLOCK):
            part = self.labels[start : start + _BLOCK]
            noise = self._generator.random((len(part), self._centres.shape[1]), dtype=np.float32)
            yield (0.75 * self._centres[part] + 0.25 * noise).astype("<f4"), part


def write_parquet(path: Path, records: int, width: int) -> None:
    """A table whose numbers are written with four digits, as measurements are."""
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    writer = None
    for block, labels in Blocks(records, width):
        columns = {f"c{number}": block[:, number].round(4) for number in range(width)}
        table = pyarrow.table(columns | {"y": labels})
        writer = writer or ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def write_npz(path: Path, records: int) -> None:
    blocks = Blocks(records, COLUMNS)

    def header(shape: tuple[int, ...], descr: str) -> dict[str, Any]:
        return {"descr": descr, "fortran_order": False, "shape": shape}

    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array_header_1_0(file, header((records, COLUMNS), "<f4"))
            for block, _ in blocks:
                file.write(block.tobytes())
        with archive.open("y.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array_header_1_0(file, header((records,), "<i8"))
            file.write(blocks.labels.astype("<i8").tobytes())


class Memory:
    """The peak of the process's own memory, looked at 20 times a second, and of that with the pages of files."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._over = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            lines = Path("/proc/self/status").read_text().splitlines()
            own = sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:")))
            self.peak_bytes = max(self.peak_bytes, 1024 * own)

    def close(self) -> dict[str, int]:
        """Look no more; both peaks."""
        self._over.set()
        return {"peak_bytes": self.peak_bytes, "resident_peak_bytes": tree_memory_bytes(os.getpid())}


def measure(folder: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """Load, neighbours and class sums of one party, or rounds of them; see this module."""
    records, parquet = chosen.records, chosen.parquet
    path = folder / ("records.parquet" if parquet else "records.npz")
    if parquet:
        write_parquet(path, records, chosen.columns)
    else:
        write_npz(path, records)
    inputs: TableInputs | VectorInputs = VectorInputs(size=COLUMNS)
    if parquet:
        files.LARGE_FROM = 0  # in batches, whatever the size of the file
        inputs = TableInputs(
            columns=tuple(NumberColumn(name=f"c{number}", low=0.0, high=1.0) for number in range(chosen.columns))
        )
    memory, steps = Memory(), dict[str, dict[str, float]]()

    def timed(name: str, work: Callable[[], Any]) -> Any:
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        result = work()
        steps[name] = {"cpu_s": time.process_time() - cpu_s, "wall_s": time.perf_counter() - wall_s}
        print(name, steps[name], file=sys.stderr)
        return result

    task = Task(classes=tuple(map(str, range(CLASSES))), inputs=inputs)
    source = DataSource(source=str(path))
    examples = timed("load", lambda: load(source, task, data_root=None))
    pools = PoolStore(None)
    pool = np.ascontiguousarray(examples.x[: 2 * (chosen.landmarks if chosen.rounds else LANDMARKS)])
    spec = pools.put(pool)
    key = simulated_key(0, "large")
    room = 4 * records * (chosen.landmarks + 1) if chosen.keep else 0
    own: dict[str, Any] = {"folder": folder, "pools": pools, "split_key": key, "disk_bytes": room}
    party = Party("large", examples, task, policy=unrestricted, **own)

    def ask(question: CastNeighbours | SumClasses) -> Any:
        answer = party.handle(Request(f"request-{len(steps)}", "run", Ask("round", question))).body
        if isinstance(answer, Failure):
            raise AssertionError(answer.message)
        return answer

    facts = {
        "records": records,
        "columns": chosen.columns if parquet else COLUMNS,
        "file_bytes": path.stat().st_size,
        "steps": steps,
    }
    if chosen.rounds:
        spec_of_map = kernel_spec(SumsConfig(landmarks=chosen.landmarks), pool, inputs, CLASSES, 2.0, 0)
        terms = QuestionTerms(
            "class-sums", {"sigma": 20.0, "classes": CLASSES, "rounds": chosen.rounds}, "add-remove", "clear"
        )
        weights = Weights.of(np.random.default_rng(1).normal(size=(spec_of_map.dimensions, CLASSES)))
        for number in range(1, chosen.rounds + 1):
            about = spec_of_map, spec.sha256, number, None if number == 1 else weights
            timed(f"round {number}", lambda: ask(SumClasses(terms, "ledger", False, *about)))  # noqa: B023
        return facts | {"landmarks": chosen.landmarks, "kept": chosen.keep, **memory.close()}
    queries = tuple(range(QUERIES))
    apart = np.square((pool[:, None] - pool[None, :QUERIES]).astype(np.float64) * 1024).sum(axis=2)
    radii = tuple(int(radius) for radius in np.quantile(apart[QUERIES:], 0.02, axis=0))
    terms = QuestionTerms(
        "individual-knn", {"sigma": 50.0, "participations": 2, "levels": 1}, "add-remove", "clear", ""
    )
    asked = PoolRange(spec.sha256, queries)
    near = CastNeighbours(terms, "ledger", Features("raw"), asked, CLASSES, radii, "flat")
    counts = timed("neighbours", lambda: ask(near)).counts
    kernel = KernelSpec(Features("raw"), tuple(range(LANDMARKS)), int(np.median(apart) / 4))
    terms = QuestionTerms("class-sums", {"sigma": 20.0, "classes": CLASSES}, "add-remove", "clear", "")
    timed("class sums", lambda: ask(SumClasses(terms, "ledger", False, kernel, spec.sha256)))
    found = int(np.asarray(counts).sum())
    about_queries = {"queries": QUERIES, "landmarks": LANDMARKS, "neighbours": found}
    return facts | about_queries | memory.close()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_party", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--parquet", action="store_true", help="a table in a Parquet file, read in batches")
    parser.add_argument(
        "--rounds", type=int, default=0, help="so many rounds of class sums in place of one and neighbours"
    )
    parser.add_argument("--landmarks", type=int, default=1000, help="of the map of the rounds")
    parser.add_argument("--keep", action="store_true", help="keep features on the disk between rounds")
    parser.add_argument("--columns", type=int, default=16, help="of the table")
    parser.add_argument("--folder", type=Path, help="where the file of the records goes; a temporary one by default")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="collegium-large-", dir=chosen.folder) as folder:
        print(json.dumps(measure(Path(folder), chosen), indent=2))


if __name__ == "__main__":
    main()
