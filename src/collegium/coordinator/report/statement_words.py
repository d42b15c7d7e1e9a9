"""The sentences of a statement, from what the ledger says and the operator recorded."""

from collections.abc import Mapping
from typing import Any

CHANGES = {
    ("record", "add-remove"): "one {record} was added or removed; to replace one is both, and costs more",
    ("record", "replace"): "the votes that hang on one {record} were others",
    ("party", "add-remove"): "one whole institution took part or did not",
    ("party", "replace"): "all records of one institution were others",
}
"""What may differ between two neighbouring data sets, by unit and adjacency."""


def who_adds(spent: Mapping[str, Any], recorded: Mapping[str, Any]) -> str:
    """Who adds the noise, and who is trusted with it."""
    told = []
    if "parties" in spent["noise"]:
        told.append(
            "Every institution adds its share of discrete noise to its own vector before it masks it. Nobody, the "
            "coordinator included, sees a sum without noise."
        )
    if "system" in spent["noise"]:
        told.append(
            "The coordinator draws discrete noise from its operating system's randomness. It is trusted to do so, "
            "and to keep to itself what it saw before: "
            + ("each institution's answers." if "clear" in recorded["sum_modes"] else "exact sums over institutions.")
        )
    if "seeded" in spent["noise"]:
        told.append("The noise follows from a seed. Whoever knows it can remove the noise: nothing is protected.")
    return " ".join(told)


def who_colludes(spent: Mapping[str, Any], recorded: Mapping[str, Any]) -> str:
    """Who would have to conspire to learn more than ε allows."""
    told = []
    if honest := spent["honest_survivors"]:
        told.append(
            f"ε counts the noise of {honest} of {len(recorded['parties'])} institutions. It holds as long as, in every "
            f"sum, at least {honest} institutions keep their own noise to themselves. Where more of the others "
            "conspire with the coordinator than was planned, less noise is left, and ε is larger."
        )
    if "clear" in recorded["sum_modes"]:
        told.append("The coordinator alone can learn more: it saw every institution's answers.")
    elif "system" in spent["noise"]:
        told.append(
            "The coordinator alone can learn more, from the exact sums that it saw. With more institutions than was "
            "planned on its side it sees the answers of single ones."
        )
    return " ".join(told)


def not_protected(spent: Mapping[str, Any], recorded: Mapping[str, Any]) -> list[str]:
    """What ε does not cover, one sentence each."""
    record, units = recorded["record_is"], {one["unit"] for one in spent["promises"]}
    told = [
        "Public facts: the task with its classes, columns and ranges, the pool of public inputs, and the names of the "
        "institutions.",
        "Who answered when, how long it took and how much was sent.",
    ]
    if "seeded" in spent["noise"]:
        told.insert(0, "Everything: the noise of this run can be computed again.")
    if "replace" in spent["adjacencies"]:
        told.append("How many voters an institution has: neighbouring data sets have equally many.")
    if record == "row":
        told.append("A person with several rows is protected less: with twice the rows by about twice the ε.")
    told.append("Somebody whose records are at two institutions counts twice, which costs more than ε.")
    if "party" not in units:
        told.append("What is true of an institution's records as a whole: ε is about one record.")
    told.append(
        "What is true of people in general: a classifier that learned it says it of everybody, whoever took part."
    )
    told.append("What an institution, the coordinator or a user of the classifier publishes besides it.")
    return told


def worth_of_delta(delta: float, *, adaptive: bool, values: int | None) -> str:
    """What δ is, and at how many times δ the figure holds.

    Parameters
    ----------
    adaptive : whether answers decide how much is used of what was stated.
    values : how many values ε could have had, had answers ended the run elsewhere; None where that was not stated.
    """
    told = f"Beyond that factor, an outcome's probability may change by δ at most: 1 in {1 / delta:,.0f}."
    if adaptive:
        return told + " Answers decide how much is used of what was stated, so ε is that of all that was stated."
    if values == 1:
        return told
    otherwise = f"at {values} times δ" if values else "no δ is stated"
    return (
        f"{told} This ε holds if no answer decided when asking ended, as where all was asked or the budget spent; if "
        f"answers decided it, {otherwise}."
    )
