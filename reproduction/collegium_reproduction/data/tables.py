"""Public tables: from files under the data root."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd

from collegium.data.loading.files import find, open_npz, read_csv
from collegium.data.loading.loading import without_test_split
from collegium.data.loading.sources import Records
from collegium.errors import DataError

ADULT_COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship",
    "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income",
)  # fmt: skip
HEART_COLUMNS = (
    "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak", "slope", "ca", "thal",
    "num",
)  # fmt: skip
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")


def read_adult(split: str, root: Path | None) -> Records:
    """UCI Adult: ``adult.data`` and ``adult.test``, each compressed or not; the class is ``income``."""
    names = {"train": ["adult.data"], "test": ["adult.test"], "all": ["adult.data", "adult.test"]}[split]
    parts = [read_csv(_compressed(name, root), names=ADULT_COLUMNS, comment="|", header=None) for name in names]
    frame = pd.concat(parts, ignore_index=True)
    frame["income"] = frame["income"].str.rstrip(".")
    return Records("adult", frame, label="income")


def read_heart(split: str, root: Path | None) -> Records:
    """UCI Heart Disease: four files ``heart_processed.<hospital>.data``, with the column ``hospital``.

    The class ``disease`` is present where ``num`` is above 0. A blood pressure or a cholesterol of 0
    was not measured.
    """
    without_test_split("heart", split)
    parts = []
    for hospital in HOSPITALS:
        path = _compressed(f"heart_processed.{hospital}.data", root)
        parts.append(read_csv(path, names=HEART_COLUMNS, header=None).assign(hospital=hospital))
    frame = pd.concat(parts, ignore_index=True)
    for name in ("trestbps", "chol"):
        frame[name] = frame[name].mask(frame[name].str.fullmatch(r"0(\.0*)?"), "")
    frame["disease"] = np.where(frame["num"].str.fullmatch(r"0(\.0*)?"), "absent", "present")
    return Records("heart", frame, label="disease")


def read_school(split: str, root: Path | None) -> Records:
    """London's schools (ILEA): ``school_ilea.npz``, with the column ``school``.

    The class ``exam`` says whether the score is 20 or more, about the median of 1 to 70.
    """
    without_test_split("school", split)
    path = find("school_ilea.npz", root)
    arrays = open_npz(path)
    absent = [name for name in ("X", "exam_score", "school") if name not in arrays]
    if absent:
        raise DataError(f"{path} has no array {absent[0]}; there are {', '.join(arrays)}")
    frame = pd.DataFrame(arrays["X"], columns=[f"x{number}" for number in range(arrays["X"].shape[1])])
    frame["school"] = arrays["school"]
    frame["exam_score"] = arrays["exam_score"]
    frame["exam"] = np.where(frame["exam_score"] >= 20, "20-or-more", "below-20")
    return Records("school", frame, label="exam")


def read_diabetes(split: str, root: Path | None) -> Records:
    """UCI Diabetes 130-US hospitals: ``diabetic_data.csv``; visits of one patient belong together.

    The class ``readmission`` says whether the patient came back within 30 days. Beside every diagnosis
    ``diag_1`` to ``diag_3`` stands its chapter of the ICD-9 as ``chapter_1`` to ``chapter_3``.
    """
    without_test_split("diabetes", split)
    frame = read_csv(_compressed("diabetic_data.csv", root))
    for number in (1, 2, 3):
        chapters = {code: icd9_chapter(code) for code in frame[f"diag_{number}"].unique()}
        frame[f"chapter_{number}"] = frame[f"diag_{number}"].map(chapters)
    frame["readmission"] = np.where(frame["readmitted"] == "<30", "within-30-days", "later-or-never")
    return Records("diabetes", frame, label="readmission", group="patient_nbr")


def icd9_chapter(code: str) -> str:
    """The group of a diagnosis, as Strack et al. 2014 (table 2) group ICD-9 codes; ``""`` where it is missing."""
    number = re.match(r"(\d+)", code)
    if number is None:
        return "other" if code[:1] in ("E", "V") else ""
    value = int(number.group(1))
    if value == 250:
        return "diabetes"
    ranges = {
        "circulatory": (range(390, 460), (785,)),
        "respiratory": (range(460, 520), (786,)),
        "digestive": (range(520, 580), (787,)),
        "genitourinary": (range(580, 630), (788,)),
        "injury": (range(800, 1000), ()),
        "musculoskeletal": (range(710, 740), ()),
        "neoplasms": (range(140, 240), ()),
    }
    return next((name for name, (span, more) in ranges.items() if value in span or value in more), "other")


def _compressed(name: str, root: Path | None) -> Path:
    """The file under the data root, or its ``.xz``."""
    if root is not None and not (root / name).exists() and (root / f"{name}.xz").exists():
        name += ".xz"
    return find(name, root)
