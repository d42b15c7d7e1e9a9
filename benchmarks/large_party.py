"""One party whose records are larger than its memory need be: ``python -m benchmarks.large_party --records 10000000``.

Records of 64 numbers are written to an ``.npz`` file that is not compressed, block by block. A party then loads it,
answers for neighbours within a radius and sums classes under a kernel map, all in one process. Printed are CPU and
wall seconds of each step, and the peak of the memory that the process needs, without the pages of the file itself,
which the system takes back when others need room.
"""

import argparse
import json
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from collegium.data import DataSource, PoolStore, load
from collegium.data.features import Features
from collegium.data.kernels import KernelSpec
from collegium.data.task import Task, VectorInputs
from collegium.parties.party import Party, unrestricted
from collegium.parties.teachers.splits import simulated_key
from collegium.protocol.messages import Request
from collegium.protocol.replies import Failure
from collegium.protocol.requests import CastNeighbours, PoolRange, SumClasses, Terms

COLUMNS, CLASSES, LANDMARKS, QUERIES = 64, 10, 100, 40
_BLOCK = 2**17


def write(path: Path, records: int) -> None:
    """Records around one centre per class, made block by block."""
    generator = np.random.default_rng(0)
    centres = generator.random((CLASSES, COLUMNS), dtype=np.float32)
    labels = generator.integers(0, CLASSES, records)

    def header(shape: tuple[int, ...], descr: str) -> dict[str, Any]:
        return {"descr": descr, "fortran_order": False, "shape": shape}

    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array_header_1_0(file, header((records, COLUMNS), "<f4"))
            for start in range(0, records, _BLOCK):
                part = labels[start : start + _BLOCK]
                block = centres[part] + 0.3 * generator.random((len(part), COLUMNS), dtype=np.float32)
                file.write(block.astype("<f4").tobytes())
        with archive.open("y.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array_header_1_0(file, header((records,), "<i8"))
            file.write(labels.astype("<i8").tobytes())


class Memory:
    """The peak of the process's own memory, looked at 20 times a second; pages of files do not count."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._over = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            lines = Path("/proc/self/status").read_text().splitlines()
            own = sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:")))
            self.peak_bytes = max(self.peak_bytes, 1024 * own)

    def close(self) -> None:
        self._over.set()


def measure(folder: Path, records: int) -> dict[str, Any]:
    """Load, neighbours and class sums of one party; see this module."""
    write(folder / "records.npz", records)
    memory, steps = Memory(), dict[str, dict[str, float]]()

    def timed(name: str, work: Callable[[], Any]) -> Any:
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        result = work()
        steps[name] = {"cpu_s": time.process_time() - cpu_s, "wall_s": time.perf_counter() - wall_s}
        return result

    task = Task(classes=tuple(map(str, range(CLASSES))), inputs=VectorInputs(size=COLUMNS))
    source = DataSource(source=str(folder / "records.npz"))
    examples = timed("load", lambda: load(source, task, data_root=None))
    pools = PoolStore(None)
    pool = np.ascontiguousarray(examples.x[: 2 * LANDMARKS])
    spec = pools.put(pool)
    key = simulated_key(0, "large")
    party = Party("large", examples, task, folder=folder, pools=pools, split_key=key, policy=unrestricted)

    def ask(body: CastNeighbours | SumClasses) -> Any:
        answer = party.handle(Request(f"request-{len(steps)}", "run", body)).body
        if isinstance(answer, Failure):
            raise AssertionError(answer.message)
        return answer

    chosen = tuple(range(QUERIES))
    apart = np.square((pool[:, None] - pool[None, :QUERIES]).astype(np.float64) * 1024).sum(axis=2)
    radii = tuple(int(radius) for radius in np.quantile(apart[QUERIES:], 0.02, axis=0))
    terms = Terms("individual-knn", {"sigma": 50.0, "participations": 2, "levels": 1}, "add-remove", "clear", "")
    near = CastNeighbours(terms, Features("raw"), PoolRange(spec.sha256, chosen), radii, "flat", "round", "ledger")
    counts = timed("neighbours", lambda: ask(near)).counts
    kernel = KernelSpec(Features("raw"), tuple(range(LANDMARKS)), int(np.median(apart) / 4))
    terms = Terms("class-sums", {"sigma": 20.0, "classes": CLASSES}, "add-remove", "clear", "")
    timed("class sums", lambda: ask(SumClasses(terms, "sums", "ledger", kernel, spec.sha256, False)))
    memory.close()
    found = int(np.asarray(counts).sum())
    return {"records": records, "columns": COLUMNS, "queries": QUERIES, "landmarks": LANDMARKS, "neighbours": found,
            "peak_bytes": memory.peak_bytes, "file_bytes": (folder / "records.npz").stat().st_size,
            "steps": steps}  # fmt: skip


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_party", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="where the file of the records goes; a temporary one by default")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="collegium-large-", dir=chosen.folder) as folder:
        print(json.dumps(measure(Path(folder), chosen.records), indent=2))


if __name__ == "__main__":
    main()
