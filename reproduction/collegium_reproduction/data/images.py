"""Public sets of images: from a file under the data root, else fetched there by torchvision."""

from __future__ import annotations

import io
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium.data.loading.files import UNREADABLE, open_npz, read_csv
from collegium.data.loading.sources import DATA_ROOT_VARIABLE, Records
from collegium.errors import DataError
from collegium.extras import optional_import

FASHION = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle-boot")
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
DIGITS = tuple("0123456789")
CELEBA_SIDE = 64
"""CelebA's faces are cut to their central square and scaled to this many pixels a side."""
_SPLITS = {"train": ("train",), "test": ("test",), "all": ("train", "test")}


def read_mnist(split: str, root: Path | None) -> Records:
    """MNIST: ``mnist.npz``, else torchvision's."""
    return _read_idx_images("mnist", "MNIST", DIGITS, split, root)


def read_fashion_mnist(split: str, root: Path | None) -> Records:
    """Fashion-MNIST: ``fashion-mnist.npz``, else torchvision's."""
    return _read_idx_images("fashion-mnist", "FashionMNIST", FASHION, split, root)


def read_cifar10(split: str, root: Path | None) -> Records:
    """CIFAR-10: torchvision's, or ``cifar10_jpeg.npz`` where that alone is at hand (lossy, sorted by class)."""
    if root is not None and (root / "cifar10_jpeg.npz").is_file() and not (root / "cifar-10-batches-py").is_dir():
        return _read_jpeg_cifar10(split, root / "cifar10_jpeg.npz")
    sets = [_torchvision("CIFAR10", "cifar10", root, train=part == "train") for part in _SPLITS[split]]
    return _images("cifar10", [s.data for s in sets], [s.targets for s in sets], CIFAR10)


def read_svhn(split: str, root: Path | None) -> Records:
    """SVHN, cropped digits: ``train_32x32.mat`` and ``test_32x32.mat``, fetched by torchvision where absent."""
    from scipy.io import loadmat

    images, labels = [], []
    for part in _SPLITS[split]:
        path = None if root is None else root / f"{part}_32x32.mat"
        if path is None or not path.is_file():
            _torchvision("SVHN", "svhn", root, split=part)
        assert path is not None
        try:
            arrays = loadmat(path)
            images.append(np.moveaxis(arrays["X"], -1, 0))
            labels.append(arrays["y"].reshape(-1).astype(np.int64) % 10)
        except (*UNREADABLE, TypeError, AttributeError) as error:
            raise DataError(f"cannot read {path}: {error}") from error
    return _images("svhn", images, labels, DIGITS)


def read_celeba(split: str, root: Path | None) -> Records:
    """CelebA: the folder ``celeba`` as torchvision lays it out; 40 attributes as columns, people as groups."""
    folder = None if root is None else root / "celeba"
    if folder is None or not (folder / "list_attr_celeba.txt").is_file():
        for part in _SPLITS[split]:
            _torchvision("CelebA", "celeba", root, split=part)
    assert folder is not None
    attributes = read_csv(folder / "list_attr_celeba.txt", sep=r"\s+", header=1, index_col=None)
    parts = read_csv(folder / "list_eval_partition.txt", sep=r"\s+", header=None, index_col=0)
    people = read_csv(folder / "identity_CelebA.txt", sep=r"\s+", header=None, index_col=0)
    wanted = {"train": ["0"], "test": ["2"], "all": ["0", "1", "2"]}[split]
    frame = attributes.replace({"1": "yes", "-1": "no"})
    frame["person"] = people[1].reindex(frame.index)
    frame = frame[parts[1].reindex(frame.index).isin(wanted)]
    files = [folder / "img_align_celeba" / str(name) for name in frame.index]
    frame = frame.reset_index(drop=True)
    return Records("celeba", frame, lambda chosen: _faces([files[i] for i in chosen]), "Smiling", "person")


def _read_idx_images(
    name: str, in_torchvision: str, classes: tuple[str, ...], split: str, root: Path | None
) -> Records:
    path = None if root is None else root / f"{name}.npz"
    if path is None or not path.is_file():
        sets = [_torchvision(in_torchvision, name, root, train=part == "train") for part in _SPLITS[split]]
        return _images(name, [s.data.numpy() for s in sets], [s.targets.numpy() for s in sets], classes)
    arrays = open_npz(path)
    try:
        images = [arrays[f"x_{part}"] for part in _SPLITS[split]]
        labels = [arrays[f"y_{part}"] for part in _SPLITS[split]]
    except KeyError as error:
        raise DataError(f"{path} has no array {error}; there are {', '.join(arrays)}") from error
    return _images(name, images, labels, classes)


def _images(origin: str, images: list[NDArray[Any]], labels: list[Any], classes: tuple[str, ...]) -> Records:
    x = np.concatenate(images)
    names = np.array(classes)[np.concatenate([np.asarray(part) for part in labels]).astype(np.int64)]
    return Records(origin, pd.DataFrame({"y": names}), lambda chosen: x[chosen])


def _read_jpeg_cifar10(split: str, path: Path) -> Records:
    arrays = open_npz(path)
    labels, pieces = [], []
    try:
        for part in _SPLITS[split]:
            offsets = arrays[f"{part}_offsets"]
            data = arrays[f"{part}_bytes"].tobytes()
            pieces += [data[a:b] for a, b in pairwise(offsets)]
            labels.append(arrays[f"{part}_labels"])
    except KeyError as error:
        raise DataError(f"{path} has no array {error}; there are {', '.join(arrays)}") from error
    names = np.array(CIFAR10)[np.concatenate(labels)]
    return Records(
        "cifar10", pd.DataFrame({"y": names}), lambda chosen: _decode([pieces[i] for i in chosen]), sorted_by_class=True
    )


def _decode(pieces: list[bytes]) -> NDArray[np.uint8]:
    with optional_import("reading images"):
        from PIL import Image

    images = np.empty((len(pieces), 32, 32, 3), dtype=np.uint8)
    for number, piece in enumerate(pieces):
        with Image.open(io.BytesIO(piece)) as image:
            images[number] = np.asarray(image.convert("RGB"))
    return images


def _faces(files: list[Path]) -> NDArray[np.uint8]:
    with optional_import("reading images"):
        from PIL import Image

    faces = np.empty((len(files), CELEBA_SIDE, CELEBA_SIDE, 3), dtype=np.uint8)
    for number, file in enumerate(files):
        try:
            with Image.open(file) as image:
                side = min(image.size)
                left, top = (image.width - side) // 2, (image.height - side) // 2
                square = image.convert("RGB").crop((left, top, left + side, top + side))
                faces[number] = np.asarray(square.resize((CELEBA_SIDE, CELEBA_SIDE), Image.Resampling.BOX))
        except UNREADABLE as error:
            raise DataError(f"cannot read {file}: {error}") from error
    return faces


def _torchvision(kind: str, name: str, root: Path | None, **options: Any) -> Any:
    """torchvision's data set, fetched to the data root where it is not there yet."""
    if root is None:
        raise DataError(f"{name}: set data_root or {DATA_ROOT_VARIABLE} to the folder for its files")
    from collegium_reproduction.data.torchvision_ops import import_torchvision

    import_torchvision()
    from torchvision import datasets

    make: Callable[..., Any] = getattr(datasets, kind)
    try:
        return make(str(root), download=True, **options)
    except (*UNREADABLE, RuntimeError, ImportError) as error:
        raise DataError(f"{name} is not under {root} and could not be fetched there: {error}") from error
