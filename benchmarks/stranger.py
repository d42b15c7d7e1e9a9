"""The stranger's program against ledgers made at random: its ε is never below the truth, and within 3 % above ours.

    python -m benchmarks.stranger --ledgers 200

It prints the largest and the smallest ratio of its ε to the ledger's for every kind of charge, and how many planted
undercharges it names.
"""

import argparse
import importlib.util
import json
import math
import sqlite3
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collegium.privacy.ledger.chain import Head, sign
from collegium.privacy.ledger.entry import Block, Terms
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.steps import Step
from collegium_accounting.mechanisms import COORDINATOR, AddedBy, Adjacency, Unit, create

PROGRAM = Path(__file__).resolve().parents[1] / "examples" / "stranger" / "verify_ledger.py"

KINDS = (
    "two classes",
    "moved votes",
    "moved votes, wide noise",
    "laplace",
    "exponential",
    "threshold and answer",
    "votes of records",
    "class sums",
    "counts",
    "vectors of the parties",
    "whole party",
    "published bounds",
    "labels beside counts",
)
SLOW = ("moved votes", "moved votes, wide noise")
"""Three outcomes: our own accountant takes minutes for each."""


def stranger() -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("verify_ledger", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks_of(kind: str, rng: np.random.Generator) -> tuple[str, dict[str, Block], dict[str, int]]:
    """Adjacency, blocks and the rounds to charge of one kind, with random parameters."""
    sigma, rounds = float(rng.uniform(8.0, 45.0)), int(rng.integers(1, 60))
    classes: int | None = 2
    near, votes, added, counted = "replace", 1, COORDINATOR, "exact"
    name, parameters = "gnmax", {"sigma": sigma}
    if kind.startswith("moved votes"):
        scales = (50.0, 150.0) if kind.endswith("wide noise") else (8.0, 12.0)
        parameters, classes, rounds = {"sigma": float(rng.uniform(*scales))}, None, int(rng.integers(1, 12))
    elif kind in ("laplace", "exponential"):
        name = {"laplace": "lnmax"}.get(kind, kind)
        parameters = {"gamma": 1.0 / float(rng.uniform(8.0, 40.0))}
    elif kind == "threshold and answer":
        name = "confident-gnmax"
        parameters = {"sigma1": 2.0 * sigma, "sigma2": sigma, "threshold": 30.0}
        rounds = min(rounds, 20)
    elif kind == "votes of records":
        name, near, parameters = (
            "individual-knn",
            "add-remove",
            {"sigma": sigma, "participations": int(rng.integers(1, 9))},
        )
    elif kind == "class sums":
        name, near, classes = "class-sums", "add-remove", None
        parameters = {"sigma": float(rng.uniform(2.0, 30.0)), "classes": 3}
        rounds = int(rng.integers(1, 9))
    elif kind == "counts":
        name, near, classes = "record-counts", "add-remove", None
        parameters, rounds = {"sigma": sigma, "parts": int(rng.integers(1, 4)), "cells": 9}, int(rng.integers(1, 4))
    elif kind == "vectors of the parties":
        added, classes = AddedBy(int(rng.integers(2, 9))), None
    elif kind == "whole party":
        votes, classes, rounds = int(rng.integers(2, 5)), None, min(rounds, 10)
    elif kind == "published bounds":
        counted, classes = "classic", None
        name = ("gnmax", "lnmax", "exponential")[int(rng.integers(3))]
        parameters = {"sigma": sigma} if name == "gnmax" else {"gamma": 1.0 / sigma}
    unit = Unit(votes, Adjacency(near))
    mechanism, blocks, charges = create(name, **parameters), {}, {}
    stages = mechanism.summed(added)
    for stage in stages:
        step = Step.of(mechanism, stage, {"record": unit}, counted, classes)  # type: ignore[arg-type]
        blocks[stage.name] = Block(step.laws, rounds if len(stages) > 1 else None, step=step)
        charges[stage.name] = rounds
    if kind == "labels beside counts":
        blocks, charges = _beside_counts(blocks, rounds, 2.0 * sigma), charges | {"counts": 1}
    return near, blocks, charges


def _beside_counts(blocks: dict[str, Block], rounds: int, sigma: float) -> dict[str, Block]:
    """The blocks with their number of rounds stated, and one vector of counts that is fixed with them."""
    counts = create("record-counts", sigma=sigma, parts=1, cells=9)
    (stage,) = counts.summed(COORDINATOR)
    step = Step.of(counts, stage, {"record": Unit()})
    stated = {purpose: replace(block, rounds=rounds) for purpose, block in blocks.items()}
    return stated | {"counts": Block(step.laws, 1, fixed=True, step=step)}


def make(path: Path, kinds: list[str], rng: np.random.Generator, signer: Ed25519PrivateKey | None) -> float:
    """A ledger with charges of these kinds, one after the other; its own ε. Kinds have the same adjacency."""
    epsilon, ledger = 0.0, None
    for kind in kinds:
        near, blocks, charges = blocks_of(kind, rng)
        terms = Terms(votes_per_unit={"record": 4}, adjacency=near, blocks=blocks)
        terms = replace(terms, votes_per_unit={"record": next(iter(blocks.values())).step.units["record"][0]})  # type: ignore[union-attr]
        ledger = Ledger.open(path, signer=signer, delta=1e-5, terms=terms, name="random")
        with ledger:
            for purpose, rounds in charges.items():
                ledger.charge(purpose, rounds)
            epsilon = ledger.epsilon()
    return epsilon


def told(program: ModuleType, path: Path) -> float:
    """The program's ε for the unit of the ledger; raises its refusal."""
    lines, heads, witnesses = program.read_chain(path)
    families, charges = program.taken(lines)
    program.agreed(witnesses, charges, heads[0].partition(":")[2])
    near = json.loads(next(iter(families)))[0].partition(" ")[0]
    return float(program.of_unit(families, "record", near, 1e-5))


def undercharged(path: Path, owner: Ed25519PrivateKey, rng: np.random.Generator) -> None:
    """Lower what every law states, Rényi curves to a quarter or less, with a right chain and the owner's signatures."""
    share = float(rng.uniform(0.1, 0.95))
    with closing(sqlite3.connect(path)) as database:
        reached: Head | None = None
        for seq, body in database.execute("SELECT seq, body FROM entries ORDER BY seq").fetchall():
            line = json.loads(body)
            for block in line.get("blocks", {}).values():
                for law in block["laws"].values():
                    if law["kind"] == "vector":
                        law["mu"] = (float.fromhex(law["mu"]) * share * 0.93).hex()
                    elif law["kind"] == "winner":
                        law["scale"] = (float.fromhex(law["scale"]) / share).hex()
                    else:
                        law["values"] = [(float.fromhex(one) * share / 4).hex() for one in law["values"]]
            row = sign(reached, json.dumps(line, sort_keys=True, separators=(",", ":")).encode(), owner)
            reached = Head(row.seq, row.hash)
            changed = (row.body, row.hash, row.signature, seq)
            database.execute("UPDATE entries SET body = ?, hash = ?, signature = ? WHERE seq = ?", changed)
        database.execute("DELETE FROM checkpoint")
        database.commit()


def measure(ledgers: int, seed: int, folder: Path, kinds: Sequence[str] = KINDS) -> tuple[dict[str, list[float]], int]:
    """Ratios of the program's ε to the ledger's by kind, and how many of as many planted undercharges were named."""
    rng, program, owner = np.random.default_rng(seed), stranger(), Ed25519PrivateKey.generate()
    ratios, named = defaultdict[str, list[float]](list), 0
    for number in range(ledgers):
        kind, path = kinds[number % len(kinds)], folder / f"{number}.sqlite"
        followed = number % 3 == 2 and kind in ("two classes", "exponential", "laplace")
        chosen = [kind, "two classes"] if followed else [kind]
        began = time.monotonic()
        ours, halfway = make(path, chosen, rng, owner), time.monotonic()
        theirs, what = told(program, path), " + ".join(chosen)
        ratios[what].append(theirs / ours)
        seconds = f"{halfway - began:.1f} s and {time.monotonic() - halfway:.1f} s"
        print(f"{number:4} {what:28} ours {ours:.4f}, theirs {theirs:.4f}; {seconds}", flush=True)
        undercharged(path, owner, rng)
        try:
            told(program, path)
        except program.Wrong:
            named += 1
    return ratios, named


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--ledgers", type=int, default=200)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--fast", action="store_true", help="Leave out what our own accountant takes minutes for.")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kinds = [kind for kind in KINDS if not given.fast or kind not in SLOW]
        ratios, named = measure(given.ledgers, given.seed, Path(folder), kinds)
    print("| charge | ledgers | smallest ratio | largest ratio |\n|---|---|---|---|")
    for kind, found in ratios.items():
        print(f"| {kind} | {len(found)} | {min(found):.4f} | {max(found):.4f} |")
    print(f"{named} of {given.ledgers} planted undercharges named")
    assert all(math.isfinite(one) for found in ratios.values() for one in found)


if __name__ == "__main__":
    main()
