"""Read DICOM images as eight-bit images of one size, each by itself."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.errors import DataError
from collegium.extras import optional_import


def is_dicom(file: Path) -> bool:
    """Whether a file is DICOM by its ending, or, without an ending, by its first 132 bytes (PS3.10, 7.1)."""
    if file.suffix:
        return file.suffix.lower() in (".dcm", ".dicom")
    with file.open("rb") as opened:
        return opened.read(132)[128:] == b"DICM"


def patient_of(file: Path) -> str:
    """The patient's identifier, empty where there is none; DataError for a file that cannot be read."""
    return str(_read(file, pixels=False).get("PatientID", "") or "")


def read_dicom(file: Path) -> NDArray[np.uint8]:
    """The image of one file, shape ``[height, width]`` or ``[height, width, 3]``, as a viewer would show it.

    Stored values are rescaled (PS3.3, C.11.1), cut to the file's first window (C.11.2.1.2) or, without one, to the
    image's own range, and inverted for MONOCHROME1. Nothing of another image is used.

    Raises
    ------
    DataError
        The file cannot be read or holds several frames.
    """
    dataset = _read(file, pixels=True)
    if int(dataset.get("NumberOfFrames", 1) or 1) > 1:
        raise DataError(f"{file} holds several frames: save each one as a file of its own")
    try:
        stored = dataset.pixel_array
    except Exception as error:  # whatever the decoder of a compressed file raises
        raise DataError(f"cannot read the pixels of {file}: {str(error).splitlines()[0]}") from error
    if stored.ndim == 3:
        return np.asarray(stored, dtype=np.uint8)
    values = stored * float(dataset.get("RescaleSlope", 1)) + float(dataset.get("RescaleIntercept", 0))
    low, high = _window(dataset, values)
    shown = np.clip((values - low) / max(high - low, 1e-12), 0.0, 1.0)
    if dataset.get("PhotometricInterpretation") == "MONOCHROME1":
        shown = 1.0 - shown
    return np.asarray(np.rint(255.0 * shown), dtype=np.uint8)


def _window(dataset: Any, values: NDArray[np.float64]) -> tuple[float, float]:
    centre, width = (np.atleast_1d(dataset.get(name, [])) for name in ("WindowCenter", "WindowWidth"))
    if centre.size and width.size and float(width[0]) > 1:
        middle, half = float(centre[0]) - 0.5, (float(width[0]) - 1.0) / 2.0
        return middle - half, middle + half
    return float(values.min()), float(values.max())


def _read(file: Path, *, pixels: bool) -> Any:
    with optional_import("reading DICOM files"):
        import pydicom

    try:
        return pydicom.dcmread(file, stop_before_pixels=not pixels)
    except (OSError, ValueError, EOFError, pydicom.errors.InvalidDicomError) as error:
        raise DataError(f"cannot read {file}: {str(error).splitlines()[0]}") from error
