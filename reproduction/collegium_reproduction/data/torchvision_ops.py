"""Import torchvision where its compiled operators do not fit the torch beside it.

torchvision registers shape functions for ``torchvision::nms`` and its twin when it is imported, and fails
when its compiled library, which defines them, could not be loaded (a torchvision built for CUDA beside a
torch for the CPU). Collegium uses neither operator: where they are absent, their schemas are enough.
"""

from __future__ import annotations

import importlib
from types import ModuleType

import torch

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_OPERATORS = ("nms", "qnms")
_kept: list[torch.library.Library] = []


def import_torchvision() -> ModuleType:
    """The module ``torchvision``, with the schemas of its operators defined where it could not define them."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for name in _OPERATORS:
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}{_SCHEMA}")  # type: ignore[no-untyped-call]
    _kept.append(library)
    return importlib.import_module("torchvision")
