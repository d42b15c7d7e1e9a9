"""Records that several rooms' tests use."""

from __future__ import annotations

import numpy as np
import pytest

from collegium.data import Examples


@pytest.fixture(scope="session")
def digits() -> Examples:
    """scikit-learn's, 1,797 images of 8 × 8 pixels."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return Examples((bunch.images * 15.9).astype(np.uint8)[..., None], bunch.target.astype(np.int64))
