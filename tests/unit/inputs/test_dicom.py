"""DICOM folders as images: shown as a viewer shows them, each by itself, with the patient as the group."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

from collegium.data import DataSource, Examples, load
from collegium.data.loading.dicom import read_dicom
from collegium.data.task import ImageInputs, Task
from collegium.errors import DataError

TASK = Task(classes=("clear", "opaque"), inputs=ImageInputs(height=4, width=4))


def write(path: Path, stored: np.ndarray, **attributes: object) -> Path:
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset = Dataset()
    dataset.file_meta = meta
    dataset.Rows, dataset.Columns = stored.shape[-2:]
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
    dataset.BitsAllocated = dataset.BitsStored = 16
    dataset.HighBit, dataset.PixelRepresentation = 15, 1
    dataset.PixelData = stored.astype("<i2").tobytes()
    for name, value in attributes.items():
        setattr(dataset, name, value)
    path.parent.mkdir(parents=True, exist_ok=True)
    dataset.save_as(path, enforce_file_format=True)
    return path


def read(folder: Path) -> Examples:
    return load(DataSource(source=str(folder)), TASK, data_root=None)


RAMP = np.arange(16).reshape(4, 4) * 100


def test_stored_values_are_rescaled_and_cut_to_the_files_window(tmp_path: Path) -> None:
    file = write(tmp_path / "a.dcm", RAMP, RescaleSlope=2, RescaleIntercept=-1000, WindowCenter=500.5, WindowWidth=1001)
    wanted = np.clip((RAMP * 2.0 - 1000.0) / 1000.0, 0.0, 1.0)
    assert np.array_equal(read_dicom(file), np.rint(255 * wanted).astype(np.uint8))


def test_without_a_window_an_image_uses_its_own_range_and_monochrome1_is_inverted(tmp_path: Path) -> None:
    plain = read_dicom(write(tmp_path / "a.dcm", RAMP))
    assert plain.min() == 0 and plain.max() == 255 and np.array_equal(np.argsort(plain.ravel()), np.arange(16))
    inverted = read_dicom(write(tmp_path / "b.dcm", RAMP, PhotometricInterpretation="MONOCHROME1"))
    assert np.array_equal(inverted, 255 - plain)


def test_a_folder_per_class_with_files_of_any_size_below_it(tmp_path: Path) -> None:
    write(tmp_path / "clear" / "visit-1" / "a.dcm", np.zeros((8, 8)), PatientID="p1", WindowCenter=5, WindowWidth=10)
    write(tmp_path / "opaque" / "IM0001", RAMP.repeat(3, 0).repeat(3, 1), PatientID="p2")
    write(tmp_path / "opaque" / "IM0002", RAMP, PatientID="p1")
    (tmp_path / "opaque" / "notes").write_text("no image")
    found = read(tmp_path)
    assert found.labels().tolist() == [0, 1, 1] and found.x.shape == (3, 4, 4, 1)
    assert np.array_equal(found.x[1], found.x[2])  # the mean of 3 × 3 equal pixels
    assert found.groups is not None and found.groups[0] == found.groups[2] != found.groups[1]


def test_a_record_does_not_depend_on_another_image(tmp_path: Path) -> None:
    write(tmp_path / "clear" / "a.dcm", RAMP)
    alone = read(tmp_path).x[0]
    write(tmp_path / "clear" / "b.dcm", RAMP * 20)
    assert np.array_equal(read(tmp_path).x[0], alone)


@pytest.mark.parametrize("fault", ["frames", "broken", "no pixels"])
def test_a_file_that_is_no_image_is_named_in_one_line(fault: str, tmp_path: Path) -> None:
    file = tmp_path / "clear" / "a.dcm"
    if fault == "frames":
        write(file, np.zeros((2, 4, 4)), NumberOfFrames=2)
    elif fault == "broken":
        write(file, RAMP)
        file.write_bytes(b"not DICOM at all" * 20)
    else:
        write(file, RAMP, PixelData=b"\0\0")
    with pytest.raises(DataError, match=r"a\.dcm") as caught:
        read(tmp_path)
    assert "\n" not in str(caught.value)
