"""Look over an institution's records before they are served: what the task's classes and columns make of them.

What is found depends on private records: it is for the institution alone, and nothing is sent anywhere.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from collegium.data import Examples
from collegium.data.encoding import MISSING, text_of
from collegium.data.loading import excel
from collegium.data.loading.files import find, found_settings, read_table
from collegium.data.loading.loading import load, read_records, respelt
from collegium.data.loading.respelling import respelt_numbers
from collegium.data.loading.row_digests import counts_rows, row_digests
from collegium.data.loading.sources import DataSource, Records
from collegium.data.numbers import like_dates
from collegium.data.task import CategoryColumn, Column, NumberColumn, TableInputs, Task
from collegium.data.texts import counted, nearest, row_numbers, written
from collegium.errors import DataError
from collegium.parties.checking_columns import matched_by_values
from collegium.parties.checking_numbers import SHOWN, check_numbers, some, spelling_of, swapped
from collegium.settings import toml_value

IDENTIFIER = re.compile(
    r"(?i)(?:^|[^a-z])(?:id|nr|no|mrn|patient|person|subject|case|participant|user|customer|pupil|student)(?:[^a-z]|$)"
)
"""Names of columns that may name the person of a row."""
MEASURED = r"\d[.,]\d"
"""In values that differ in every row and measure something all the same, or are dates."""
SUGGESTED = 20
"""Of so many spellings, the most frequent ones, a setting is suggested."""
FILL_IN = "?"
"""What a suggested setting has where somebody must say what a spelling means. As a value it counts as missing."""


@dataclass
class RecordsCheck:
    """What was found.

    Parameters
    ----------
    notes : what somebody should look at, a line each.
    settings : what to write below ``[data]``, by key.
    refused : why `collegium party serve` would refuse these records; None where it takes them.
    even_then : why it would refuse them with ``settings`` too; empty where it would take them.
    changed : that they are others than those that answered last.
    """

    records: int = 0
    per_class: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    settings: dict[str, object] = field(default_factory=dict)
    refused: str | None = None
    even_then: str = ""
    changed: str | None = None

    def lines(self) -> list[str]:
        """The findings as lines for people."""
        lines = [f"records      {self.records}"]
        lines += [f"class        {name}: {count}" for name, count in self.per_class.items()]
        lines += [f"look at      {note}" for note in (*self.notes, *filter(None, [self.changed]))]
        if self.settings:
            settings = [f"    {key} = {toml_value(value)}" for key, value in self.settings.items()]
            would = (
                f"; the records would {'still be refused' if self.even_then else 'be taken then'}"
                if self.refused
                else ""
            )
            if f'= "{FILL_IN}"' in "".join(settings):
                would += f'; put in place of "{FILL_IN}" what the task calls it'
            lines += [f"set below [data] in party.toml, if it is right{would}:", *settings]
            lines += [f"even then: {self.even_then}"] if self.even_then else []
        end = f"these records would be refused: {self.refused}" if self.refused else "these records can be served"
        return [*lines, end, "Nothing was sent; keep this output to yourselves."]


def check_records(source: DataSource, task: Task, root: Path | None) -> RecordsCheck:
    """Read the records as a serving party would, and say what is unusual about them.

    Parameters
    ----------
    root : the folder in which relative paths start.

    Raises
    ------
    DataError
        If there is no such file, nothing of it can be read under any setting, or its database cannot be read.
    """
    examples = _loaded(source, task, root)
    found, given = RecordsCheck(refused=examples if isinstance(examples, str) else None), source
    _check_sheets(found, source, task, root)
    source = source.model_copy(update=found.settings)
    try:
        records = read_records(source, task, root)
    except DataError:
        if source.is_database:  # no encoding or separator of a file could help
            raise
        how, _ = found_settings(find(source.source, root), source, read_table)
        found.settings, source = {**found.settings, **how}, source.model_copy(update=how)
        records = read_records(source, task, root)
    found.records = len(records)
    inputs = [column.name for column in task.inputs.columns] if isinstance(task.inputs, TableInputs) else []
    used = {source.label, source.group, *source.rename, *inputs}
    numbered = [name for name in row_numbers(records.frame) if name not in used]
    if numbered:
        found.notes.append("a column without a name numbers the rows: it is not used")
    records = replace(records, frame=records.frame.drop(columns=numbered))
    if not task.multilabel:
        _check_labels(found, records, source, task)
    if isinstance(task.inputs, TableInputs) and records.inputs is None:
        _check_columns(found, records, source, task.inputs)
    mended = given.model_copy(update=_filled_in(found.settings, task))
    then = _loaded(mended, task, root) if found.settings else examples
    found.even_then = then if found.settings and isinstance(then, str) else ""
    if source.group is None and records.group is None:
        seen = then if isinstance(examples, str) else examples
        _check_persons(found, records, None if isinstance(seen, str) else seen, source, task)
    return found


def _filled_in(settings: dict[str, object], task: Task) -> dict[str, object]:
    """The settings as if somebody had filled in what is open: what is refused then is no matter of that."""
    filled = dict(settings)
    if isinstance(classes := settings.get("classes"), dict):
        filled["classes"] = {own: task.classes[0] if one == FILL_IN else one for own, one in classes.items()}
    if isinstance(names := settings.get("rename"), dict) and FILL_IN in names.values():
        filled |= {"rename": {own: one for own, one in names.items() if one != FILL_IN}, "absent": "missing"}
    return filled


def _check_sheets(found: RecordsCheck, source: DataSource, task: Task, root: Path | None) -> None:
    """Say which sheet of several was read, and which one has the columns that it lacks."""
    if source.is_named or source.is_database or not source.source.lower().endswith(excel.ENDING):
        return
    path = find(source.source, root)
    names = excel.sheets_of(path)
    if len(names) == 1 or source.sheet is not None:
        return
    found.notes.append(f"the sheet {names[0]!r} is read; the workbook also has {', '.join(map(repr, names[1:]))}")
    wanted = [column.name for column in task.inputs.columns] if isinstance(task.inputs, TableInputs) else []

    def fits(sheet: str) -> tuple[int, int]:
        columns = excel.names_in(path, sheet)
        used = {source.rename.get(one, one) for one in columns}
        return sum(one in used or nearest(one, columns) is not None for one in wanted), min(len(columns), len(wanted))

    best = max(names, key=fits)
    if best != names[0]:
        found.settings["sheet"] = best


def _loaded(source: DataSource, task: Task, root: Path | None) -> Examples | str:
    """The records as the task needs them, or why they are not so."""
    try:
        examples = load(source, task, data_root=root)
        examples.labels()
    except DataError as error:
        return str(error)
    return examples


def _check_persons(
    found: RecordsCheck, records: Records, examples: Examples | None, source: DataSource, task: Task
) -> None:
    """Look for signs that a person has several rows, where no group names the person of a row."""
    inputs = {column.name for column in task.inputs.columns} if isinstance(task.inputs, TableInputs) else set()
    settings = {**source.model_dump(), **found.settings}
    for name in records.frame.columns:
        values, called = records.frame[name], settings["rename"].get(name, name)
        named = IDENTIFIER.search(str(name)) is not None
        if called in inputs or name == (settings["label"] or records.label) or (called == FILL_IN and not named):
            continue
        per_value = values.value_counts()
        many = len(per_value) ** 2 > len(values) and not pd.api.types.is_float_dtype(values)
        if (named or many) and len(per_value) < len(values):
            found.notes.append(
                f"REPEATED IDENTIFIER: {name} has {len(per_value)} values in {len(values)} rows, up to "
                f'{per_value.iloc[0]} rows for one: if it names the person, write group = "{name}" below [data]'
            )
    label = settings["label"] or records.label
    if examples is not None and examples.rows is not None:
        rows, labels = examples.rows, examples.labels()
    elif records.inputs is None and label in records.frame:  # of what would be refused, each fault at once
        others = [name for name in records.frame if name != label and not counts_rows(name)]
        rows, labels = row_digests(records.frame[others], None, source)[0], pd.factorize(records.frame[label])[0]
    else:
        return
    _, row, times = np.unique(rows, return_inverse=True, return_counts=True)
    if (times > 1).any() and len(set(labels.tolist())) <= max(SUGGESTED, 2 * task.label_numbers):
        differ = len({*zip(row.tolist(), labels.tolist(), strict=True)}) - len(times)
        unlike = f", {differ} of them but for the label" if differ else ""
        found.notes.append(
            f"EQUAL ROWS: {int(times[times > 1].sum())} rows are equal to another one, up to {times.max()} to each "
            f"other{unlike}: if a person has several, name the column of the person, or set one_row_each = false"
        )


def _check_labels(found: RecordsCheck, records: Records, source: DataSource, task: Task) -> None:
    name = source.label or records.label
    if name not in records.frame.columns:
        name = _label_column(found, records, source, task)
        if name == FILL_IN:
            return
    counts = Counter(respelt(records.frame[name], source.classes).tolist())
    classes = {text_of(one): one for one in task.classes}
    if records.numbered:
        classes |= {str(number): one for number, one in enumerate(task.classes)}
    found.per_class = dict.fromkeys(task.classes, 0)
    suggested: dict[str, str] = {}
    most, lacking = max(SUGGESTED, 2 * len(classes)), 0
    for label, count in counts.most_common():
        if label in classes:
            found.per_class[classes[label]] += count
        elif label.lower() in MISSING and label.casefold() not in map(str.casefold, classes):
            lacking += count
        else:
            near = nearest(label, classes)
            if len(suggested) < (SHOWN if len(counts) > most else most):
                meant = f": {near}?" if near else ""
                found.notes.append(f"the label {label!r} of {counted(count, 'record', 'records')} is no class{meant}")
            suggested[label] = classes[near] if near is not None else FILL_IN
            if near is not None:
                found.per_class[classes[near]] += count
    _note_unlabelled(found, lacking, source)
    if len(suggested) > most:
        found.notes.append(
            f"{len(suggested)} different labels are no class: is {name} the column of the class? The file also has "
            f"{', '.join(str(one) for one in records.frame.columns if one != name)}"
        )
    elif suggested:
        found.settings["classes"] = {**source.classes, **suggested}
    if FILL_IN not in suggested.values():  # otherwise what they mean decides which classes there are
        _check_present(found, task)


def _note_unlabelled(found: RecordsCheck, count: int, source: DataSource) -> None:
    """Say how many records have no label, if any, and propose to leave them out where that was not said."""
    if not count:
        return
    left_out = source.unlabelled == "leave-out"
    alone, several = (", and counts for nothing", ", and count for nothing") if left_out else ("", "")
    found.notes.append(counted(count, f"record has no label{alone}", f"records have no label{several}"))
    found.settings |= {} if left_out else {"unlabelled": "leave-out"}


def _label_column(found: RecordsCheck, records: Records, source: DataSource, task: Task) -> str:
    """Say that there is no label column, and which one it probably is."""
    name, there = source.label or records.label, records.frame.columns
    near, by = nearest(name, there), ""
    if near is None:
        near, by = _holding_classes(records, source, task), ", by its values"
    found.notes.append(f"there is no label column {name}{_instead(near, there, by)}")
    found.settings["label"] = near or FILL_IN
    return near or FILL_IN


def _holding_classes(records: Records, source: DataSource, task: Task) -> str | None:
    """The column whose values are probably the classes, where one alone is likely and no input has its name."""
    inputs = {column.name for column in task.inputs.columns} if isinstance(task.inputs, TableInputs) else set()
    used = {source.group, *(own for own in records.frame.columns if source.rename.get(own, own) in inputs)}
    free = [own for own in records.frame.columns if own not in used and _has_class(records.frame[own], task)]
    classes = CategoryColumn(name="", categories=task.classes)
    return matched_by_values(records.frame, [classes], free, source).get("")


def _has_class(values: "pd.Series[Any]", task: Task) -> bool:
    return any(nearest(str(value), task.classes) is not None for value in values.unique()[: 2 * len(task.classes)])


def _check_present(found: RecordsCheck, task: Task) -> None:
    present = [one for one, count in found.per_class.items() if count]
    if len(present) == 1:
        found.notes.append(f"ONE CLASS: all records are of the class {present[0]}: they teach nothing else")
    elif present and len(present) < len(task.classes):
        absent = [one for one in task.classes if one not in present]
        found.notes.append(f"no record is of the class {', '.join(absent)}")


def _check_columns(found: RecordsCheck, records: Records, source: DataSource, inputs: TableInputs) -> None:
    frame = records.frame.rename(columns=source.rename)
    wanted = [column.name for column in inputs.columns]
    twice = [name for name in wanted if f"{name}.1" in frame.columns]  # as pandas calls the second one
    found.notes += [f"TWO COLUMNS are called {name}: the first one is read" for name in twice]
    label = found.settings.get("label", source.label or records.label)
    spare = [str(name) for name in frame.columns if name not in (*wanted, label, source.group)]
    like = {name: nearest(name, spare) for name in wanted if name not in frame.columns}
    renamed = {near: name for name, near in like.items() if near is not None}
    others = [one for one in spare if one not in renamed]
    # No name of a row, so perhaps what is lacking.
    shared = [one for one in others if not frame[one].is_unique or frame[one].astype(str).str.contains(MEASURED).any()]
    found.notes += [f"there is no column {name}{_instead(near, ())}" for name, near in like.items() if near]
    unlike = [column for column in inputs.columns if column.name in like and like[column.name] is None]
    probable = matched_by_values(frame, unlike, [one for one in others if IDENTIFIER.search(one) is None], source)
    found.notes += [
        f"there is no column {name}{_instead(own, (), ', by its values')}" for name, own in probable.items()
    ]
    left = [column for column in unlike if column.name not in probable]
    free = [one for one in shared if one not in probable.values()]
    if len(left) == len(free) == 1 and _holds_categories(frame[free[0]], left[0]):
        probable |= {left[0].name: free[0]}
        found.notes.append(f"there is no column {left[0].name}{_instead(free[0], (), ', the only one left')}")
    renamed |= {own: name for name, own in probable.items()}
    others, shared = ([one for one in names if one not in renamed] for names in (others, shared))
    lacking = [column.name for column in unlike if column.name not in probable]
    if lacking:
        found.notes.append(f"there is no column {', '.join(lacking)}{_instead(None, others)}")
    if 0 < len(shared) < len(lacking):  # an amount of money may be another in every row too
        shared = others
    if lacking and source.absent == "refuse":
        if shared:
            renamed |= dict.fromkeys(shared, FILL_IN)
        else:
            found.settings["absent"] = "missing"
    if (probable or (lacking and shared)) and source.absent == "refuse" and "absent" not in found.settings:
        found.notes.append('if your records never had such a column, set absent = "missing" in place of its rename')
    if renamed:
        found.settings["rename"] = {**source.rename, **renamed}
    frame = frame.rename(columns={name: column for name, column in renamed.items() if column != FILL_IN})
    numbers = [one.name for one in inputs.columns if isinstance(one, NumberColumn) and one.name in frame.columns]
    spelt = {name: respelt(frame[name], source.values[name], written) for name in numbers if name in source.values}
    frame = frame.assign(**spelt)
    spelling = spelling_of(frame, inputs.columns, source)
    found.settings |= spelling
    source = source.model_copy(update=spelling)
    frame = _swapped_back(found, respelt_numbers(frame, source, inputs), source, inputs)
    for column in inputs.columns:
        if column.name not in frame.columns:
            continue
        if isinstance(column, NumberColumn):
            noted, settings = check_numbers(frame[column.name], column, source)
            found.notes += noted
            scale = {**source.scale, **found.settings.get("scale", {}), **settings.pop("scale", {})}  # type: ignore[dict-item]
            _add_values(found, column.name, settings.pop("values", {}), source)
            found.settings |= settings | ({"scale": scale} if scale != source.scale else {})
        else:
            _check_categories(found, frame[column.name], column, source)


def _holds_categories(values: "pd.Series[Any]", column: Column) -> bool:
    """Whether these may be the categories of the column under other names: hardly more of them than it has."""
    return isinstance(column, CategoryColumn) and values.nunique() <= 2 * len(column.categories)


def _swapped_back(found: RecordsCheck, frame: pd.DataFrame, source: DataSource, inputs: TableInputs) -> pd.DataFrame:
    """The frame with columns that were probably swapped in their places; what else is found is of these."""
    for one, other in swapped(frame, inputs.columns, source):
        found.notes.append(f"SWAPPED: {one} and {other} fit the range of the other better than their own")
        names: dict[str, str] = {**source.rename, **found.settings.get("rename", {})}  # type: ignore[dict-item]
        own = {column: name for name, column in names.items()}
        found.settings["rename"] = {**names, own.get(one, one): other, own.get(other, other): one}
        frame = frame.rename(columns={one: other, other: one})
    return frame


def _add_values(found: RecordsCheck, column: str, meant: dict[str, str], source: DataSource) -> None:
    if meant:
        every: dict[str, dict[str, str]] = found.settings.setdefault("values", dict(source.values))  # type: ignore[assignment]
        every[column] = {**source.values.get(column, {}), **meant}


def _check_categories(
    found: RecordsCheck, values: "pd.Series[Any]", column: CategoryColumn, source: DataSource
) -> None:
    known, own = {text_of(name) for name in column.categories}, source.values.get(column.name, {})
    others = Counter(text for text in respelt(values, own).tolist() if text not in known)
    unknown = Counter({text: count for text, count in others.items() if text.lower() not in MISSING})
    missing = sum(others.values()) - sum(unknown.values())
    said, known_ones = [f"{missing} missing"] if missing else [], ""
    if date := like_dates(list(unknown.elements())):
        found.notes.append(f"DATES: {column.name} has dates such as {date!r}, but is a category: tell the operator")
    if unknown:
        said.append(f"{sum(unknown.values())} of no known category ({some(unknown, known)})")
        meant = {text: nearest(text, sorted(known)) or FILL_IN for text, _ in unknown.most_common(SUGGESTED)}
        _add_values(found, column.name, meant, source)
        if FILL_IN in meant.values():
            known_ones = f"; the task has {', '.join(column.categories[:SUGGESTED])}"
    if said:
        loud = "SPELLINGS: " if 2 * sum(unknown.values()) > len(values) else ""
        found.notes.append(f"{loud}{column.name}: {', '.join(said)} of {len(values)}{known_ones}")


def _instead(near: str | None, names: Iterable[object], by: str = "") -> str:
    """What a missing column may be called: the nearest name, or else the names of the file that nothing uses."""
    shown = [str(name) for name in names]
    listed = f"; the file also has {', '.join(shown[:12])}{', …' if len(shown) > 12 else ''}" if shown else ""
    return f": is it {near}{by}?" if near is not None else listed
