"""What the papers report on SVHN, on small files of its layout."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from collegium_reproduction.experiments import svhn
from collegium_reproduction.experiments.base import Setting
from collegium_reproduction.nearest.knn import PrivateKNN
from scipy.io import savemat
from unit.experiments.conftest import silent

from collegium_accounting.mechanisms import create

TRAIN, TEST, POOL = 200, 100, 60


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    """Images whose class is their brightness; class 0 is kept as 10, as in the set's files."""
    folder, draws = tmp_path_factory.mktemp("svhn"), np.random.default_rng(0)
    for part, count in (("train", TRAIN), ("test", TEST)):
        labels = np.arange(count) % 10
        images = (20 + 22 * labels)[:, None, None, None] + draws.integers(0, 8, (count, 32, 32, 3))
        kept = {"X": np.moveaxis(images.astype(np.uint8), 0, -1), "y": np.where(labels == 0, 10, labels)[:, None]}
        savemat(folder / f"{part}_32x32.mat", kept)
    run = tmp_path_factory.mktemp("run")
    return silent(run, folder, ensembles=run / "ensembles", device="cpu")


def test_figure_4_is_measured_on_images_outside_the_pool(setting: Setting) -> None:
    experiment = svhn.PateSvhn(
        replace(svhn.SVHN, parties=8, kind="random-forest"),
        POOL,
        queries=(20, 40),
        method="random-forest",
        mechanism=create("lnmax", gamma=2.0),  # what eight teachers bear
    )
    results = experiment.run(setting)
    assert [row["queries"] for row in results["rows"]] == [20, 40]
    lines = experiment.render(results).splitlines()
    for row in results["rows"]:
        # By chance a tenth of 40 images held out: half of them and more has a probability below 1e-9.
        assert row["student"] >= 0.5 and row["teachers"] > 0.3
        assert 0 < row["exact"] <= row["independent"]
        (line,) = [line for line in lines if line.startswith(f"| {row['queries']} | Collegium")]
        assert f"{100 * row['student']:.2f} %" in line and f"{row['independent']:.2f}" in line


def test_table_1_is_measured_with_the_papers_parameters(setting: Setting) -> None:
    (real,) = svhn.plans()
    assert real.mechanism == PrivateKNN(800, 10, 480.0, 200.0, 60.0, 0.03) and sum(real.sizes) == 6000
    data = {
        **real.data,
        "pool": {**real.data["pool"], "stop": POOL},
        "holdout": {**real.data["holdout"], "start": POOL},
        "student": {"method": "supervised", "options": {"steps": 20}},
    }
    small = replace(real, data=data, mechanism=PrivateKNN(6, 10, 2.0, 1.0, 0.5, 0.9), sizes=(15, 15), budget=999.0)
    small = replace(small, dimensions=16)
    experiment = svhn.KnnTable1Svhn((small,))
    results = experiment.run(setting)
    assert [row["screened"] for row in results["rows"]] == [15, 30] and results["records"] == TRAIN
    assert results["rows"][0]["epsilon"] < results["rows"][1]["epsilon"]
    page = experiment.render(results)
    assert f"{results['rows'][-1]['epsilon']:.2f}" in page and "200 training images" in page
