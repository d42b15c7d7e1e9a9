"""Which curves come with the package, and the command that computes them: `make curves`.

They are those of the examples on the first pages, so that nobody waits for them. Whoever changes what the game returns
runs it again: files of another `cache.ALGORITHM` are not read.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np

from collegium_accounting.game import cache
from collegium_accounting.game.winner import RoundLaw, winner_profile
from collegium_accounting.units import Adjacency

GAUSSIAN, LAPLACE = "discrete-gaussian", "discrete-laplace"

CURVES = {
    "README.md and docs/python.md": [(RoundLaw(LAPLACE, 20.0), 100), (RoundLaw(GAUSSIAN, 40.0), 286)],
    "accounting/README.md": [(RoundLaw(LAPLACE, 20.0), 20)],
    "docs/choosing-noise.md": [
        (RoundLaw(GAUSSIAN, 10.0), 40),
        (RoundLaw(GAUSSIAN, 25.0, sampling_rate=0.15), 200),
        (RoundLaw(GAUSSIAN, 75.0, Adjacency.ADD_REMOVE, sampling_rate=0.15), 200),
    ],
    "docs/notebooks/accounting.ipynb": [
        *((RoundLaw(GAUSSIAN, sigma), rounds) for sigma in (20.0, 40.0) for rounds in (1, 25)),
        (RoundLaw(LAPLACE, 20.0), 25),
    ],
}
"""By page: the law of one round, and the number of rounds."""


def computed(law: RoundLaw, rounds: int, folder: Path) -> Path:
    """Play a game as on a machine where nothing is kept; the file that it leaves in an empty ``folder``."""
    kept, cache.KEPT = cache.KEPT, folder / "none"
    found = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    cache.forget()
    try:
        winner_profile(law, rounds)
    finally:
        cache.KEPT = kept
        del os.environ["XDG_CACHE_HOME"]
        if found is not None:
            os.environ["XDG_CACHE_HOME"] = found
        cache.forget()
    (file,) = folder.rglob("*.npz")
    return file


def keep() -> None:
    """Compute all curves again, and keep no other."""
    files = {}
    for page, curves in CURVES.items():
        for law, rounds in curves:
            print(f"{page}: {rounds} rounds, {law}", flush=True)
            with tempfile.TemporaryDirectory() as folder:
                file = computed(law, rounds, Path(folder))
                with np.load(file) as arrays:
                    files[file.name] = dict(arrays)
    for old in cache.KEPT.iterdir():
        old.unlink()
    for name, arrays in files.items():
        np.savez_compressed(cache.KEPT / name, allow_pickle=False, **arrays)


if __name__ == "__main__":
    keep()
