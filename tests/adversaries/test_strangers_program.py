"""The program with which a stranger checks a ledger: none of our code, an ε of its own, and every undercharge named."""

from __future__ import annotations

import ast
import json
import math
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from adversaries.test_parties_that_forget import VOTED, Clinics
from adversaries.test_statements import signed_clinics
from benchmarks.stranger import PROGRAM, measure, stranger
from scipy.stats import binom

from collegium.privacy.ledger.chain import Head, sign
from collegium.privacy.ledger.ledger import Ledger

SEED = 3
CLOSED_FORMS = (
    "class sums",
    "counts",
    "vectors of the parties",
    "whole party",
    "published bounds",
)
GAMES = ("two classes", "laplace", "exponential", "votes of records", "labels beside counts")
LOOSEST = 1.03


def imported() -> set[str]:
    nodes = list(ast.walk(ast.parse(PROGRAM.read_text(encoding="utf-8"))))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {name.partition(".")[0] for name in names | {n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)}}


def test_it_shares_no_code_with_the_package() -> None:
    assert imported() - sys.stdlib_module_names == {"numpy", "scipy", "cryptography"}


def test_its_figure_is_within_three_per_cent_above_ours_where_there_is_a_closed_form(tmp_path: Path) -> None:
    ratios, named = measure(10, SEED, tmp_path, CLOSED_FORMS)
    assert all(1.0 - 1e-6 <= ratio <= LOOSEST for found in ratios.values() for ratio in found)
    assert named == 10


@pytest.mark.slow
def test_its_figure_is_within_three_per_cent_above_ours_where_rounds_are_a_game(tmp_path: Path) -> None:
    """Ours is up to 1 % above what an adversary attains, so that the program may be that much below ours."""
    ratios, named = measure(5, SEED, tmp_path, GAMES)
    assert all(0.99 <= ratio <= LOOSEST for found in ratios.values() for ratio in found)
    assert named == 5


@pytest.mark.parametrize(
    ("noise", "adjacency", "classes", "rate", "rounds"),
    [
        ("discrete-gaussian", "replace", 2, 1.0, 12),
        ("discrete-gaussian", "add-remove", None, 1.0, 40),
        ("discrete-gaussian", "add-remove", None, 0.5, 40),
        ("discrete-laplace", "replace", 2, 1.0, 12),
        ("discrete-laplace", "replace", None, 1.0, 3),
        ("gumbel", "replace", None, 1.0, 12),
    ],
)
def test_its_games_are_never_below_what_the_same_positions_force(
    noise: str, adjacency: str, classes: int | None, rate: float, rounds: int
) -> None:
    """A policy that stays at one position forces an ε; a quarter of the rounds, planted, shows."""
    program = stranger()
    law = {
        "noise": noise,
        "scale": (10.0).hex(),
        "adjacency": adjacency,
        "classes": classes,
        "sampling_rate": rate.hex(),
    }
    for pairs in program.tables(law, rounds):
        _, step = program.stride(pairs, rounds)
        value = program.played(pairs, law, rounds, 1e-5, step)
        fewer = program.played(pairs, law, rounds // 4, 1e-5, step)
        forced = max(_forced(p, q, rounds) for p, q, *_ in pairs)
        assert program.read(value, step, 1e-5) >= forced > 0.0
        assert program.read(fewer, step, 1e-5) < forced


@pytest.mark.parametrize("rounds", [1, 40])
def test_what_lies_between_tabulated_positions_is_below_the_reserve(rounds: int) -> None:
    """Positions drawn between those of a table of σ = 60; without the reserve some pass their corners."""
    program, scale, rng = stranger(), 60.0, np.random.default_rng(SEED)
    n = np.arange(-574, 575)
    noise = np.exp(-((n / scale) ** 2) / 2)
    noise /= noise.sum()
    k = np.exp(np.linspace(-6.0, 6.0, 97) * math.sqrt(2.0) / scale)
    half, passed, drawn = math.ceil(7.0 * scale), 0, 300
    for tie, table in enumerate(program.three(noise, "gaussian", scale, rounds)):
        wide = int(math.sqrt(len(table[0])))
        w = round(2 * half / (wide - 1))
        assert wide * wide == len(table[0]) and w > 1
        for x, y in rng.integers(-3 * 60, 3 * 60, size=(drawn, 2)):
            i, j = (int(x) + half) // w, (int(y) + half) // w
            corners = [(i + a) * wide + j + b for a in (0, 1) for b in (0, 1)]
            p, q = _winner(noise, int(x), int(y), tie), _winner(noise, int(x) - 1, int(y) + 1, tie)
            true = np.maximum(p - k[:, None] * q, 0.0).sum(1) - np.maximum(1.0 - k, 0.0)
            above = program.excess([one[corners] for one in table], k).max(0)
            bare = program.excess([*(one[corners] for one in table[:2]), *[np.zeros((4, 3))] * 4], k).max(0)
            assert (true <= above + 1e-12).all()
            passed += bool((true > bare + 1e-9).any())
    assert passed >= 1


def _winner(noise: Any, x: int, y: int, tie: int) -> Any:
    """Probabilities that a, b or the rest wins, by adding up a's noise; the rest wins its ties, a those of tie = 1."""
    wide, below = len(noise) // 2, np.append(0.0, np.cumsum(noise))
    n = np.arange(-wide, wide + 1)

    def at_most(value: Any) -> Any:
        return below[np.clip(value + wide + 1, 0, len(noise))]

    a = float((noise * at_most(n + x - y - 1 + tie))[n + x > 0].sum())
    rest = float(at_most(np.array(-x)) * at_most(np.array(-y)))
    return np.array([a, 1.0 - a - rest, rest])


def _forced(p: Any, q: Any, rounds: int) -> float:
    """ε at 1e-5 of so many rounds at the position of the largest chi-square divergence, two outcomes merged."""
    best = int(((p - q) ** 2 / np.maximum(p + q, 1e-300)).sum(1).argmax())
    hits = np.arange(-1, rounds)
    found = 0.0
    for outcome in range(p.shape[1]):
        likely, other = binom.sf(hits, rounds, p[best, outcome]), binom.sf(hits, rounds, q[best, outcome])
        found = max(found, float(np.log(np.maximum(likely - 1e-5, 1e-300) / np.maximum(other, 1e-300)).max()))
    return found


@pytest.fixture(scope="module")
def clinics(tmp_path_factory: pytest.TempPathFactory) -> Clinics:
    made = signed_clinics(tmp_path_factory.mktemp("clinics"))
    made.ask(VOTED, 4, mode="masked+noised")
    return made


def told(ledger: Path, *certificates: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-I", str(PROGRAM), str(ledger), *map(str, certificates)], capture_output=True, text=True
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def test_it_reads_ledger_certificates_and_the_parties_signatures(clinics: Clinics, tmp_path: Path) -> None:
    kit = clinics.folder / "coordinator"
    code, said = told(clinics.folder / "ledger.sqlite", kit / "certificate.pem", kit / "authority.pem")
    with Ledger.read(clinics.folder / "ledger.sqlite") as ledger:
        ours = ledger.epsilon()
    (line,) = [line for line in said.splitlines() if "one record (replace)" in line]
    assert code == 0 and "followed, as they signed, by c-0, c-1, c-2, c-3, c-4" in said
    assert ours * (1 - 1e-4) <= float(line.split()[2]) <= LOOSEST * ours
    other = signed_clinics(tmp_path)
    code, said = told(
        clinics.folder / "ledger.sqlite", tmp_path / "coordinator" / "certificate.pem", kit / "authority.pem"
    )
    assert code == 1 and "not the authority's" in said and other.operator != clinics.operator


def one_byte(database: sqlite3.Connection, clinics: Clinics) -> None:
    (body,) = database.execute("SELECT body FROM entries WHERE seq = 1").fetchone()
    database.execute("UPDATE entries SET body = ? WHERE seq = 1", (body.replace(b"replace", b"Replace"),))


def other_signer(database: sqlite3.Connection, clinics: Clinics) -> None:
    database.execute("UPDATE entries SET signature = zeroblob(64) WHERE seq = 2")


def dropped(database: sqlite3.Connection, clinics: Clinics) -> None:
    database.execute("DELETE FROM entries WHERE seq = 2")


def witness_of_another_chain(database: sqlite3.Connection, clinics: Clinics) -> None:
    database.execute("UPDATE witnesses SET head = '2:' || hex(zeroblob(32)) WHERE party = 'c-1'")


def fewer_rounds(database: sqlite3.Connection, clinics: Clinics) -> None:
    """The operator charges one round of four, signs that chain, and keeps what the parties signed of their answers."""
    rows = database.execute("SELECT seq, body FROM entries ORDER BY seq").fetchall()
    reached: Head | None = None
    for seq, body in rows:
        line = json.loads(body)
        if line["kind"] == "charge":
            line["queries"] = 1
        row = sign(reached, json.dumps(line, sort_keys=True, separators=(",", ":")).encode(), clinics.operator)
        reached = Head(row.seq, row.hash)
        changed = (row.body, row.hash, row.signature, seq)
        database.execute("UPDATE entries SET body = ?, hash = ?, signature = ? WHERE seq = ?", changed)
    for party, agreed in database.execute("SELECT party, agreed FROM witnesses").fetchall():
        first = database.execute("SELECT hash FROM entries WHERE seq = 0").fetchone()[0].hex()
        said = json.dumps([one | {"ledger": first[:32]} for one in json.loads(agreed)])
        message = b"collegium ledger followed v2\0" + str(reached).encode() + b"\0" + said.encode()
        values = (str(reached), clinics.keys[party].sign(message), said, party)
        database.execute("UPDATE witnesses SET head = ?, signature = ?, agreed = ? WHERE party = ?", values)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (one_byte, "was changed or removed"),
        (other_signer, "not the owner's signature"),
        (dropped, "was changed or removed"),
        (witness_of_another_chain, "c-1: "),
        (fewer_rounds, "agreed to 4 rounds of gnmax; the ledger has 1"),
    ],
)
def test_what_was_changed_is_named(
    clinics: Clinics, tmp_path: Path, change: Callable[[sqlite3.Connection, Clinics], None], named: str
) -> None:
    ledger = tmp_path / "ledger.sqlite"
    shutil.copy(clinics.folder / "ledger.sqlite", ledger)
    with closing(sqlite3.connect(ledger)) as database:
        change(database, clinics)
        database.commit()
    code, said = told(ledger)
    assert code == 1 and said.startswith("refused: ") and named in said
