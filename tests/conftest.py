"""Loaded before any test module, in every process that runs tests."""

import os

# Several processes share the cores: each computes on one thread, as do the processes that it starts.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

import collegium  # noqa: F401  before gRPC, which reads its TLS settings once (see `collegium`)

# How long one example takes says how busy the machine is; a test that hangs runs into the limit of all tests.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

WORKERS = 3
"""Processes for the whole suite: one more than the cores it must do with, for many tests wait for processes."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Tests that were named run in this process: there a debugger works, and nothing need be started for them."""
    return WORKERS if config.args_source is pytest.Config.ArgsSource.TESTPATHS else 0
