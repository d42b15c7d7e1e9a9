"""torchvision can be imported beside any torch."""

import subprocess
import sys

import pytest

FITTING = (
    "from collegium_reproduction.data.torchvision_ops import import_torchvision as i; a = i(); b = i(); assert a is b; "
)

WITHOUT_LIBRARY = """
import sys, torch
real = torch.ops.load_library
def missing(path):
    raise OSError("built for another torch")
torch.ops.load_library = missing
"""


def run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_torchvision_is_imported_once_with_its_data_sets_and_transforms() -> None:
    run(FITTING + "import torchvision.datasets, torchvision.transforms.v2; assert a.__version__")


@pytest.mark.slow
def test_torchvision_is_imported_where_its_compiled_library_does_not_load() -> None:
    run(WITHOUT_LIBRARY + FITTING + "import torchvision.datasets; assert torch.ops.torchvision.nms")
