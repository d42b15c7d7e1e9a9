"""Five clinics' records as CSV files, and the public ones, to try docs/tutorial.md without data of one's own.

    python clinics.py    writes clinic-1.csv to clinic-5.csv, pool.csv and holdout.csv into the current folder

They are parts of the breast cancer data that scikit-learn bundles (Wisconsin, diagnostic; UCI).
"""

from __future__ import annotations

from sklearn.datasets import load_breast_cancer

CLINICS, RECORDS_EACH, POOL = 5, 80, 100


def main() -> None:
    data = load_breast_cancer(as_frame=True)
    frame = data.frame.drop(columns="target")
    frame["diagnosis"] = data.target.map(lambda number: data.target_names[number])
    frame = frame.sample(frac=1.0, random_state=0)
    for clinic in range(CLINICS):
        part = frame.iloc[clinic * RECORDS_EACH : (clinic + 1) * RECORDS_EACH]
        part.to_csv(f"clinic-{clinic + 1}.csv", index=False)
    private = CLINICS * RECORDS_EACH
    frame.iloc[private : private + POOL].drop(columns="diagnosis").to_csv("pool.csv", index=False)
    frame.iloc[private + POOL :].to_csv("holdout.csv", index=False)


if __name__ == "__main__":
    main()
