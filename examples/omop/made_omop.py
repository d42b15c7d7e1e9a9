"""A small made OMOP database for each of five clinics, and public inputs, to try the recipe without data of one's own.

    python made_omop.py    writes clinic-1.sqlite to clinic-5.sqlite and pool.csv into the current folder

The persons are drawn at random and resemble nobody. `write` fills any database that SQLAlchemy reaches.
"""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import sqlalchemy

CLINICS, PERSONS, POOL = 5, 600, 300
DIABETES, HEART_FAILURE = 201826, 316139
EARLIER = {"hypertension": 320128, "hyperlipidemia": 432867, "kidney_disease": 46271022}
MEASURED = {"hba1c": 3004410, "systolic": 3004249, "creatinine": 3016723, "bmi": 3038553}
OTHER_CONDITIONS = (255573, 140673, 4152280)
TABLES = {
    "person": "person_id INTEGER, gender_concept_id INTEGER, year_of_birth INTEGER",
    "condition_occurrence": "person_id INTEGER, condition_concept_id INTEGER, condition_start_date DATE",
    "measurement": "person_id INTEGER, measurement_concept_id INTEGER, measurement_date DATE, value_as_number REAL",
}
Tables = dict[str, list[dict[str, object]]]


def patients(rng: np.random.Generator, count: int) -> pd.DataFrame:
    """What the recipe finds of each person, and whether heart failure follows: it depends on four of the features."""
    age = rng.integers(30, 90, count)
    frame = pd.DataFrame(
        {
            "age": age,
            "sex": rng.choice(["male", "female"], count),
            "hypertension": rng.random(count) < 0.5,
            "hyperlipidemia": rng.random(count) < 0.4,
            "kidney_disease": rng.random(count) < 0.25,
            "hba1c": rng.normal(7.5, 1.2, count).clip(4, 14).round(1),
            "systolic": rng.normal(138, 16, count).clip(80, 220).round(),
            "creatinine": rng.lognormal(0.1, 0.3, count).clip(0.3, 8).round(2),
            "bmi": rng.normal(30, 5, count).clip(15, 60).round(1),
        }
    )
    risk = 0.08 * (age - 62) + 0.05 * (frame["systolic"] - 138) + 1.5 * frame["kidney_disease"] - 0.4
    frame["heart_failure"] = risk + 0.08 * (frame["bmi"] - 30) > 0
    return frame


def clinic(rng: np.random.Generator, count: int) -> Tables:
    """The rows of the three tables for so many persons with diabetes, and a tenth as many without."""
    tables: Tables = {name: [] for name in TABLES}
    for number, one in enumerate(patients(rng, count).to_dict("records")):
        day = dt.date(2012, 1, 1) + dt.timedelta(days=int(rng.integers(0, 3000)))
        sex = 8507 if one["sex"] == "male" else 8532
        tables["person"].append(
            {"person_id": number, "gender_concept_id": sex, "year_of_birth": day.year - int(one["age"])}
        )
        found = [(DIABETES, 0), (DIABETES, 200)]
        found += [(concept, -400) for name, concept in EARLIER.items() if one[name]]
        found += [(other, -90) for other in OTHER_CONDITIONS if rng.random() < 0.3]
        found += [(HEART_FAILURE, 240)] if one["heart_failure"] else []
        for concept, days in found:
            start = day + dt.timedelta(days=days)
            tables["condition_occurrence"].append(
                {"person_id": number, "condition_concept_id": concept, "condition_start_date": start}
            )
        for name, concept in MEASURED.items():
            if rng.random() < 0.1:
                continue  # never measured
            for days, change in ((-300, 0.8), (-20, 1.0), (60, 1.3)):  # older, the one that counts, and later
                tables["measurement"].append(
                    {
                        "person_id": number,
                        "measurement_concept_id": concept,
                        "measurement_date": day + dt.timedelta(days=days),
                        "value_as_number": float(one[name]) * change,
                    }
                )
    for number in range(count, count + count // 10):  # persons without diabetes are in no cohort
        tables["person"].append({"person_id": number, "gender_concept_id": 8507, "year_of_birth": 1950})
    return tables


def write(url: str | sqlalchemy.URL, tables: Tables) -> None:
    """Make the tables in the database, and fill them."""
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    with engine.begin() as connection:
        for name, columns in TABLES.items():
            connection.execute(sqlalchemy.text(f"CREATE TABLE {name} ({columns})"))
            connection.execute(sqlalchemy.text(f"CREATE INDEX {name}_of ON {name} (person_id)"))  # as OMOP's own have
            values = ", ".join(f":{column.split()[0]}" for column in columns.split(", "))
            connection.execute(sqlalchemy.text(f"INSERT INTO {name} VALUES ({values})"), tables[name])


def public_inputs(rng: np.random.Generator, count: int) -> pd.DataFrame:
    """Inputs without labels, by the schema alone: what a consortium may draw, or take from a public set."""
    frame = patients(rng, count).drop(columns="heart_failure")
    frame.insert(2, "conditions", rng.integers(0, 6, count))
    return frame.replace({True: "yes", False: "no"})


def main() -> None:
    for number in range(1, CLINICS + 1):
        write(f"sqlite:///clinic-{number}.sqlite", clinic(np.random.default_rng(number), PERSONS))
    public_inputs(np.random.default_rng(0), POOL).to_csv("pool.csv", index=False)


if __name__ == "__main__":
    main()
