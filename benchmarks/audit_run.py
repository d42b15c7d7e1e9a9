"""How close `collegium audit --run` comes to ε, and which planted bugs it refutes: ``python -m benchmarks.audit_run``.

Class sums of 3 classes over 5 parties in this process at ε = 1 and δ = 1e-5. The coordinator adds the noise, so that
the true ε is the stated one. Each row is of 10 rehearsals, without a bug of 40.
``--json`` prints the same as JSON. ``--votes`` prints the same of runs of votes, of 100 teachers or of neighbours.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from collegium.coordinator import noise
from collegium.coordinator.kind import RunKind
from collegium.coordinator.noise import CoordinatorNoise
from collegium.data import load
from collegium.models import kernels
from collegium.simulations.cohort import RECORDS
from collegium.simulations.run_audit import audit_run
from collegium_accounting.mechanisms import SystemNoise
from collegium_accounting.mechanisms.class_sums import SumRelease
from collegium_accounting.mechanisms.gaussian_stage import GaussianLabels
from collegium_accounting.mechanisms.lnmax import LaplaceRelease

REPEATS, HONEST = 10, 40
CONFIG = """
name = "rehearsed"
pool = {{ source = "{pool}" }}
private = {{ source = "nobody-reads-it.npz" }}
partition = {{ parties = 5 }}
votes = {{ mode = "{mode}" }}
budget = {{ epsilon = {epsilon}, delta = 1e-5 }}
sums = {{ rounds = {rounds}, landmarks = 300 }}
{more}
[task]
classes = ["a", "b", "c"]
inputs = {{ kind = "vector", size = 8 }}
"""


def configured(folder: Path, *, epsilon: float = 1.0, mode: str = "clear", rounds: int = 1, more: str = "") -> Path:
    """Write a configuration over a pool of random vectors into ``folder``."""
    pool, path = folder / "pool.npz", folder / "run.toml"
    np.savez(pool, x=np.random.default_rng(0).normal(size=(1200, 8)).astype(np.float32))
    path.write_text(CONFIG.format(pool=pool, mode=mode, epsilon=epsilon, rounds=rounds, more=more), encoding="utf-8")
    return path


@contextmanager
def half_the_noise() -> Iterator[None]:
    """The coordinator draws noise, and adds half of it."""
    drawn = CoordinatorNoise.vector

    def half(self: CoordinatorNoise, stage: Any, values: Any, drawn_for: str) -> Any:
        return values + (drawn(self, stage, values, drawn_for) - values) // 2

    with patch.object(CoordinatorNoise, "vector", half):
        yield


@contextmanager
def a_draw_used_again() -> Iterator[None]:
    """Every round has the noise of the first."""
    drawn, kept = CoordinatorNoise.vector, dict[int, Any]()

    def again(self: CoordinatorNoise, stage: Any, values: Any, drawn_for: str) -> Any:
        return values + kept.setdefault(len(values), drawn(self, stage, values, drawn_for) - values)

    with patch.object(CoordinatorNoise, "vector", again):
        yield


@contextmanager
def every_record_twice() -> Iterator[None]:
    """Parties read each of their records twice."""

    def twice(*given: Any, **named: Any) -> Any:
        records, of_party = load(*given, **named), Path(given[0].source).name == RECORDS
        return records.take(np.repeat(np.arange(len(records)), 2)) if of_party else records

    with patch("collegium.simulations.cohort.load", twice):
        yield


@contextmanager
def vectors_too_long() -> Iterator[None]:
    """What is brought to a length is twice as long."""
    right = kernels.of_length
    with patch.object(kernels, "of_length", lambda vectors, most: right(vectors, 4 * most)):
        yield


@contextmanager
def an_understated_law() -> Iterator[None]:
    """A sum is charged half of its μ, so that the budget asks for half of the noise."""
    right = SumRelease.law

    def understated(self: SumRelease, *given: Any) -> Any:
        law: Any = right(self, *given)
        return replace(law, mu=law.mu / 2.0)

    with patch.object(SumRelease, "law", understated):
        yield


def _noise(**drawn: Callable[..., Any]) -> AbstractContextManager[Any]:
    """The coordinator's noise on votes, with other ways to draw it."""
    return patch.object(noise, "SystemNoise", type("Planted", (SystemNoise,), drawn))


def half_the_noise_of_votes() -> AbstractContextManager[Any]:
    """Half of the noise is drawn."""
    right = SystemNoise
    return _noise(
        gaussian=lambda self, sigma, shape: right.gaussian(self, sigma / 2.0, shape),
        laplace=lambda self, scale, shape: right.laplace(self, scale / 2.0, shape),
    )


def a_draw_for_all_inputs() -> AbstractContextManager[Any]:
    """All inputs of a round have the noise of the first."""
    right = SystemNoise
    return _noise(
        gaussian=lambda self, sigma, shape: right.gaussian(self, sigma, (1, *shape[1:])).repeat(shape[0], axis=0),
        laplace=lambda self, scale, shape: right.laplace(self, scale, (1, *shape[1:])).repeat(shape[0], axis=0),
    )


def a_draw_for_all_rounds() -> AbstractContextManager[Any]:
    """Every round has the noise of the first."""
    right, kept = SystemNoise, dict[Any, Any]()
    return _noise(
        gaussian=lambda self, *asked: kept.setdefault(asked, right.gaussian(self, *asked)),
        laplace=lambda self, *asked: kept.setdefault(asked, right.laplace(self, *asked)),
    )


def every_vote_twice() -> AbstractContextManager[Any]:
    """The coordinator reads each vote twice."""
    right = RunKind.votes
    return patch.object(RunKind, "votes", lambda self, question, counts: 2 * right(self, question, counts))


@contextmanager
def an_understated_law_of_votes() -> Iterator[None]:
    """A label is charged as if there were twice the noise."""
    gaussian, laplace = GaussianLabels.law, LaplaceRelease.law
    with (
        patch.object(GaussianLabels, "law", lambda self, *given: gaussian(replace(self, sigma=2 * self.sigma), *given)),
        patch.object(LaplaceRelease, "law", lambda self, *given: laplace(replace(self, gamma=self.gamma / 2), *given)),
    ):
        yield


def of_votes(folder: Path, name: str, count: int = 300) -> Path:
    """Write a configuration of one of `VOTES` into ``folder``."""
    queries = f"queries = {{ count = {count}, batch = {count // 3} }}"
    more = f'student = {{ method = "random-forest" }}\n{queries}\n{VOTES[name]}'
    path = configured(folder, epsilon=50.0, mode="masked", more=more)
    text = path.read_text(encoding="utf-8").replace("sums = {", "# sums = {").replace('"a", "b", "c"', '"a", "b"')
    path.write_text(text, encoding="utf-8")
    return path


Bug = Callable[[], AbstractContextManager[None]]
PLANTED: dict[str, tuple[Bug, int]] = {
    "half the noise": (half_the_noise, 1),
    "half the noise, four rounds": (half_the_noise, 4),
    "every record twice": (every_record_twice, 1),
    "vectors twice as long": (vectors_too_long, 1),
    "an understated law": (an_understated_law, 1),
    "a draw used again, four rounds": (a_draw_used_again, 4),
}
"""Bugs by their names, each with the number of rounds in which it shows."""


PLANTED_IN_VOTES: dict[str, Bug] = {
    "half the noise": half_the_noise_of_votes,
    "every vote twice": every_vote_twice,
    "an understated law": an_understated_law_of_votes,
    "a draw for all inputs": a_draw_for_all_inputs,
    "a draw for all rounds": a_draw_for_all_rounds,
}
"""Bugs in votes by their names."""

_TEACHERS = 'teachers = { kind = "random-forest", per_party = 20 }\n'
VOTES = {
    "gnmax": _TEACHERS + 'mechanism = { name = "gnmax", parameters = { sigma = 10.0 } }',
    "lnmax": _TEACHERS + 'mechanism = { name = "lnmax", parameters = { gamma = 0.1 } }',
    "confident-gnmax": _TEACHERS
    + 'mechanism = { name = "confident-gnmax", parameters = { sigma1 = 20.0, sigma2 = 10.0, threshold = 60.0 } }',
    "neighbours": 'neighbours = { features = "raw", dimensions = 8, share = 0.03 }\n'
    'mechanism = { name = "individual-knn", parameters = { sigma = 10.0, participations = 20 } }',
}
"""Runs of votes, by their names."""


def measured(canaries: int, rounds: int, bug: Bug | None = None) -> dict[str, float | int | str]:
    """What several audits say of a run with ``bug`` planted."""
    started, least, refuted, stated = time.monotonic(), [], 0, 0.0
    repeats = HONEST if bug is None else REPEATS
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder, nullcontext() if bug is None else bug():
            (sums,) = audit_run(configured(Path(folder), rounds=rounds), canaries=canaries).kinds
        least.append(sums.epsilon_lower_bound)
        refuted, stated = refuted + sums.refuted, sums.epsilon_stated
    return {
        "canaries": canaries,
        "stated": round(stated, 3),
        "mean": round(float(np.mean(least)), 3),
        "least": round(min(least), 3),
        "refuted": f"{refuted} of {repeats}",
        "seconds": round((time.monotonic() - started) / repeats, 1),
    }


def rows() -> Iterator[tuple[str, dict[str, float | int | str]]]:
    """Each row of the table, by its name."""
    for canaries in (3000, 9000):
        yield "no bug", measured(canaries, 1)
    yield "no bug, four rounds", measured(3000, 4)
    for name, (bug, rounds) in PLANTED.items():
        yield name, measured(3000, rounds, bug)


def vote_rows() -> Iterator[tuple[str, dict[str, float | int | str]]]:
    """Each row of the table about votes, by its name."""
    for name in VOTES:
        for bug, plant in {"no bug": nullcontext, **PLANTED_IN_VOTES}.items():
            started, found = time.monotonic(), []
            for _ in range(REPEATS):
                with tempfile.TemporaryDirectory() as folder, plant():
                    found.append(audit_run(of_votes(Path(folder), name), canaries=3000).kinds)
            of_last = [kinds[-1] for kinds in found]
            least = [one.epsilon_lower_bound for one in of_last]
            yield (
                f"{name}, {bug}",
                {
                    "outcomes": of_last[0].rounds,
                    "stated": round(of_last[0].epsilon_stated, 3),
                    "mean": round(float(np.mean(least)), 3),
                    "least": round(min(least), 3),
                    "refuted": f"{sum(any(one.refuted for one in kinds) for kinds in found)} of {REPEATS}",
                    "seconds": round((time.monotonic() - started) / REPEATS, 1),
                },
            )


if __name__ == "__main__":
    if "--votes" in sys.argv:
        print("| run | labels paid | ε stated | lower bound, mean | least | refuted | seconds each |")
        print("|---|---|---|---|---|---|---|")
        for name, row in vote_rows():
            print(f"| {name} | " + " | ".join(map(str, row.values())) + " |", flush=True)
    elif "--json" in sys.argv:
        print(json.dumps(dict(enumerate({"run": name, **row} for name, row in rows())), indent=1))
    else:
        print("| run | canaries | ε stated | lower bound, mean | least | refuted | seconds each |")
        print("|---|---|---|---|---|---|---|")
        for name, row in rows():
            print(f"| {name} | " + " | ".join(map(str, row.values())) + " |", flush=True)
