"""Write the files of docs/differing-files.md: public inputs, and records of five hospitals that write them differently.

Where does a patient go from the emergency room? The patients are drawn at random and resemble nobody.
"""

from pathlib import Path

import numpy as np
import pandas as pd

RNG = np.random.default_rng(7)


def patients(rows: int) -> pd.DataFrame:
    """Patients with their outcome: home, ward or intensive."""
    age, pulse = RNG.integers(18, 95, rows), RNG.normal(80, 18, rows).clip(40, 130).round(1)
    arrival = RNG.choice(["ambulance", "on foot", "referred"], rows, p=[0.3, 0.5, 0.2])
    fever = RNG.choice(["yes", "no"], rows, p=[0.3, 0.7])
    risk = 0.05 * (age - 55) + 0.05 * (pulse - 80) + 1.5 * (arrival == "ambulance") + (fever == "yes")
    risk = risk + RNG.normal(0, 0.7, rows)
    outcome = np.select([risk > 2.2, risk > 0.2], ["intensive", "ward"], "home")
    names = [f"P{number}" for number in range(rows)]
    columns = {"patient": names, "age": age, "pulse": pulse, "arrival": arrival, "fever": fever, "outcome": outcome}
    return pd.DataFrame(columns)


GERMAN = {"age": "Alter", "pulse": "Puls", "arrival": "Ankunft", "fever": "Fieber", "outcome": "Verbleib"}
SPELT = {"ambulance": "Rettung", "on foot": "zu Fuß", "referred": "Überweisung", "yes": "ja", "no": "nein"}
OUTCOMES = {"home": "Entlassung", "ward": "Station", "intensive": "Überwachung"}

patients(400).drop(columns="outcome").to_csv("pool.csv", index=False)
patients(300).to_csv("ash.csv", index=False)
birch = patients(300).replace({"arrival": SPELT, "fever": SPELT, "outcome": OUTCOMES}).rename(columns=GERMAN)
birch.to_csv("birch.csv", index=False, sep=";", decimal=",", encoding="latin-1")
cedar = patients(300)[["outcome", "fever", "arrival", "pulse", "age", "patient"]]
cedar["arrival"] = cedar["arrival"].str.upper()
cedar.replace({"fever": {"yes": "1", "no": "0"}}).to_csv("cedar.csv", index=False)
patients(300).drop(columns="fever").to_csv("oak.csv", index=False)
patients(400).query("outcome != 'intensive'").to_csv("yew.csv", index=False)
patients(100).to_csv("new.csv", index=False)
print("wrote", ", ".join(sorted(path.name for path in Path().glob("*.csv"))))
