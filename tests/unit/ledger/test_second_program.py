"""The second program's own formulas for each mechanism of this package: they enclose what the ledger counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from collegium.privacy.ledger.entry import Block, Terms
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.steps import Counted, Step
from collegium.privacy.ledger.verifier import verify
from collegium_accounting.mechanisms import COORDINATOR, AddedBy, Adjacency, Unit, create

RECORD, PARTY = Unit(1), Unit(3)
CAME = Unit(1, Adjacency.ADD_REMOVE)


@pytest.mark.parametrize("counted", ["exact", "classic", "whole counts"])
@pytest.mark.parametrize(
    ("name", "parameters", "unit"),
    [
        ("gnmax", {"sigma": 12.0}, RECORD),
        ("gnmax", {"sigma": 12.0}, CAME),
        ("gnmax", {"sigma": 12.0}, PARTY),
        ("confident-gnmax", {"sigma1": 30.0, "sigma2": 10.0, "threshold": 9.0}, RECORD),
        ("confident-gnmax", {"sigma1": 30.0, "sigma2": 10.0, "threshold": 9.0}, PARTY),
        ("lnmax", {"gamma": 0.05}, RECORD),
        ("lnmax", {"gamma": 0.05}, PARTY),
        ("exponential", {"gamma": 0.05}, RECORD),
        ("exponential", {"gamma": 0.05}, PARTY),
        ("individual-knn", {"sigma": 12.0, "participations": 4}, CAME),
        ("class-sums", {"sigma": 4.0, "classes": 3}, CAME),
        ("class-sums", {"sigma": 4.0, "classes": 3}, RECORD),
        ("record-counts", {"sigma": 8.0, "parts": 3, "cells": 9}, CAME),
        ("record-counts", {"sigma": 8.0, "parts": 3, "cells": 9}, RECORD),
    ],
)
def test_the_second_program_encloses_each_mechanism(
    tmp_path: Path, name: str, parameters: dict[str, float], unit: Unit, counted: Counted
) -> None:
    mechanism = create(name, **parameters)
    shared = (AddedBy(3),) if "masked+noised" in mechanism.sum_modes else ()
    for stage in (stage for added in (COORDINATOR, *shared) for stage in mechanism.summed(added)):
        step = Step.of(mechanism, stage, {"record": unit}, counted, 2 if counted == "exact" else None)
        block, path = Block(step.laws, step=step), tmp_path / f"{stage.name} {stage.added.parties}.sqlite"
        terms = Terms(votes_per_unit={"record": unit.votes}, adjacency=unit.adjacency.value, blocks={stage.name: block})
        with Ledger.open(path, signer=None, delta=1e-5, terms=terms, name="x") as ledger:
            ledger.charge(stage.name, 5)
            epsilon = ledger.epsilon()
        least, most = verify(path).bounds("record", unit.adjacency.value)
        assert 0.05 * epsilon < least <= epsilon * (1.0 + 1e-9) and epsilon <= most * 1.01 and np.isfinite(most)
