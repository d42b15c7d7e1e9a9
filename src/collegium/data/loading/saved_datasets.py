"""Read a Hugging Face dataset that `save_to_disk` wrote into a folder."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.data.loading.sources import Indices, Records
from collegium.errors import DataError
from collegium.extras import optional_import


def is_saved_dataset(folder: Path) -> bool:
    """Whether `save_to_disk` of a Dataset or a DatasetDict wrote the folder."""
    return (folder / "dataset_dict.json").is_file() or (folder / "dataset_info.json").is_file()


def read_saved_dataset(folder: Path, split: str) -> Records:
    """One split of the dataset: its image column, or its one column of lists of numbers, is the input.

    A column of class numbers is read as the classes' names. Where there is neither an image nor a list, the columns
    are those of a table. DataError where the folder cannot be read or does not say which column is the input.
    """
    with optional_import("reading a Hugging Face dataset"):
        import datasets

    try:
        found = datasets.load_from_disk(str(folder))
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"cannot read {folder}: {str(error).splitlines()[0]}") from error
    if isinstance(found, datasets.DatasetDict):
        if split == "all":
            found = datasets.concatenate_datasets(list(found.values()))
        elif split in found:
            found = found[split]
        else:
            raise DataError(f"{folder} has no split {split}; there are {', '.join(found)}")
    elif split == "test":
        raise DataError(f"{folder} has no test split: name another folder, or set start and stop")
    inputs = [name for name, kind in found.features.items() if isinstance(kind, datasets.Image)]
    lists = [name for name, kind in found.features.items() if hasattr(kind, "feature")]
    chosen = inputs or lists
    if len(chosen) > 1:
        raise DataError(f"{folder} has several columns that may be the input: {', '.join(chosen)}; remove all but one")
    frame = found.remove_columns(chosen).to_pandas()
    own = [name for name, kind in found.features.items() if isinstance(kind, datasets.ClassLabel)]
    for name in own:
        names = found.features[name].names
        frame[name] = [None if number is None or number < 0 else names[int(number)] for number in frame[name]]

    def rows(indices: Indices) -> NDArray[Any]:
        return np.stack([np.asarray(row) for row in found.select(indices)[chosen[0]]])

    return Records(str(folder), frame, rows if chosen else None, label=own[0] if len(own) == 1 else "y")
