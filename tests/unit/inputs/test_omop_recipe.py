"""The OMOP recipe: cohort.sql finds what Python finds, in SQLite and PostgreSQL, and a student learns from it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sqlalchemy
from support.files import module_at
from support.postgres import PROGRAMS, server

import collegium as cg
from collegium.coordinator.settings.consortium import read_consortium
from collegium.data import DataSource, load
from collegium.parties.config import OwnRecords
from collegium.parties.policy import PolicyConfig

pytestmark = pytest.mark.slow

RECIPE = Path(__file__).resolve().parents[3] / "examples" / "omop"
QUERY = (RECIPE / "cohort.sql").read_text(encoding="utf-8")
FEATURES = {"age", "sex", "conditions", "hypertension", "hyperlipidemia", "kidney_disease"}
FEATURES |= {"hba1c", "systolic", "creatinine", "bmi"}


@pytest.fixture(scope="module")
def made() -> ModuleType:
    """examples/omop/made_omop.py."""
    return module_at(RECIPE / "made_omop.py")


def rows_of(url: str | sqlalchemy.URL) -> pd.DataFrame:
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    with engine.connect() as connection:
        frame = pd.read_sql(sqlalchemy.text(QUERY), connection)
    return frame.sort_values(list(frame.columns), ignore_index=True)


def computed(tables: dict[str, list[dict[str, Any]]]) -> pd.DataFrame:
    """The cohort once more, person by person, in Python."""
    persons = {row["person_id"]: row for row in tables["person"]}
    conditions, measured = pd.DataFrame(tables["condition_occurrence"]), pd.DataFrame(tables["measurement"])
    rows = []
    for number, own in conditions.groupby("person_id"):
        diabetes = own[own.condition_concept_id == 201826]
        if diabetes.empty:
            continue
        day = diabetes.condition_start_date.min()
        before = set(own[own.condition_start_date < day].condition_concept_id)
        after = own[(own.condition_concept_id == 316139) & (own.condition_start_date > day)].condition_start_date
        months = [(one.year - day.year) * 12 + one.month - day.month for one in after]
        person, age = persons[number], day.year - persons[number]["year_of_birth"]
        if age < 18 or 316139 in before:
            continue
        values = measured[(measured.person_id == number) & (measured.measurement_date <= day)]
        newest = values.sort_values("measurement_date").groupby("measurement_concept_id").value_as_number.last()
        row = {
            "age": age,
            "sex": {8507: "male", 8532: "female"}[person["gender_concept_id"]],
            "conditions": len(before),
        }
        for name, concept in {"hypertension": 320128, "hyperlipidemia": 432867, "kidney_disease": 46271022}.items():
            row[name] = "yes" if concept in before else "no"
        for name, concept in {"hba1c": 3004410, "systolic": 3004249, "creatinine": 3016723, "bmi": 3038553}.items():
            row[name] = newest.get(concept, np.nan)
        rows.append(row | {"heart_failure": "yes" if any(month <= 12 for month in months) else "no"})
    frame = pd.DataFrame(rows)
    return frame.sort_values(list(frame.columns), ignore_index=True)


def tricky(made: ModuleType) -> dict[str, list[dict[str, Any]]]:
    """Made tables, and persons at the edges: a child, heart failure before, after 13 months, on the day itself."""
    tables = made.clinic(np.random.default_rng(5), 60)
    day = pd.Timestamp("2015-01-31").date()
    edges = {
        9001: (2005, [("2016-01-01", 316139)]),
        9002: (1950, [("2014-12-31", 316139)]),
        9003: (1950, [("2016-01-31", 316139)]),
        9004: (1950, [("2016-02-01", 316139)]),
        9005: (1950, [("2015-01-31", 316139), ("2015-01-31", 320128)]),
    }
    for number, (born, found) in edges.items():
        tables["person"].append({"person_id": number, "gender_concept_id": 8532, "year_of_birth": born})
        for start, concept in [(str(day), 201826), *found]:
            row = {"person_id": number, "condition_concept_id": concept}
            tables["condition_occurrence"].append(row | {"condition_start_date": pd.Timestamp(start).date()})
    return tables


def test_the_query_finds_the_cohort_that_python_finds(made: ModuleType, tmp_path: Path) -> None:
    tables, url = tricky(made), f"sqlite:///{tmp_path / 'clinic.sqlite'}"
    made.write(url, tables)
    found, expected = rows_of(url), computed(tables)
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    assert set(found.columns) == FEATURES | {"heart_failure"}
    assert 0 < (found.heart_failure == "yes").sum() < len(found) and found.hba1c.isna().any()


@pytest.mark.skipif(PROGRAMS is None, reason="PostgreSQL is not installed")
def test_postgresql_finds_the_rows_that_sqlite_finds(made: ModuleType, tmp_path: Path) -> None:
    tables, url = tricky(made), f"sqlite:///{tmp_path / 'clinic.sqlite'}"
    made.write(url, tables)
    with server() as postgres:
        there = sqlalchemy.make_url(postgres.url).set(password=postgres.password)
        made.write(there, tables)
        found = rows_of(there)
    pd.testing.assert_frame_equal(found, rows_of(url), check_dtype=False, rtol=1e-6)


def test_the_clinics_file_is_what_a_site_reads() -> None:
    read = tomllib.loads((RECIPE / "party.toml").read_text(encoding="utf-8"))
    records = OwnRecords.model_validate(read["data"])
    assert records.is_database and records.persons is True
    assert list(read["parties"]) == list(read_consortium(RECIPE / "consortium.toml").consortium.parties)


def test_five_clinics_learn_heart_failure_from_their_databases(made: ModuleType, tmp_path: Path) -> None:
    config = read_consortium(RECIPE / "consortium.toml")
    assert {column.name for column in config.task.inputs.columns} == FEATURES
    records = {}
    for seed, name in enumerate(config.consortium.parties, start=1):
        url = f"sqlite:///{tmp_path / name}.sqlite"
        made.write(url, made.clinic(np.random.default_rng(seed), made.PERSONS))
        source = DataSource(source=url, query=QUERY, label="heart_failure")
        examples = load(source, config.task, data_root=None)
        records[name] = (examples.x, examples.labels())
    pool = made.public_inputs(np.random.default_rng(0), made.POOL)
    agreed = PolicyConfig(minimum_noise_sums=0.1, queries=10, record_epsilon=8.0, seeded_noise=True)
    coordinator = cg.Coordinator(cg.LocalParties(records, config.task, policy=agreed, seed=0), pool, epsilon=1.0)
    coordinator.label()
    student = coordinator.fit()
    truth = made.patients(np.random.default_rng(77), 2000)
    truth.insert(2, "conditions", 2)
    asked = truth.drop(columns="heart_failure").replace({True: "yes", False: "no"})
    predicted = np.asarray(student.predict(asked)) == "yes"
    majority = max(truth.heart_failure.mean(), 1 - truth.heart_failure.mean())
    assert (predicted == truth.heart_failure).mean() > majority + 0.15
