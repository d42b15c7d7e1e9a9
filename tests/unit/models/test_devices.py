"""Device names, threads and precision."""

from __future__ import annotations

import subprocess
import sys

import pytest
import threadpoolctl
import torch
from collegium_reproduction.students.gan import reduced_precision

from collegium.errors import ConfigurationError
from collegium.models.devices import check_device, mixed_precision, one_thread, resolve_device, set_threads


def test_auto_takes_cuda_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [resolve_device(name) for name in ("auto", "cpu", "cuda", "cuda:1")] == ["cuda", "cpu", "cuda", "cuda:1"]
    with pytest.raises(ConfigurationError, match="2 CUDA devices"):
        resolve_device("cuda:2")


def test_cuda_that_is_absent_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == "cpu"
    for name in ("cuda", "cuda:0"):
        with pytest.raises(ConfigurationError, match="use auto or cpu"):
            check_device(name)


@pytest.mark.parametrize("name", ["gpu", "", "CPU", "cuda:", "cuda:x", "cpu:0", "cuda:-1"])
def test_an_unknown_device_is_refused(name: str) -> None:
    for function in (check_device, resolve_device):
        with pytest.raises(ConfigurationError, match="unknown device"):
            function(name)


def test_one_thread_is_told_to_torch_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where OpenMP alone was limited, torch called itself limited, and its own algebra went on with more threads."""
    before, told, honest = torch.get_num_threads(), list[int](), torch.set_num_threads
    honest(2)
    with monkeypatch.context() as patched:
        patched.setattr(torch, "set_num_threads", lambda threads: (told.append(threads), honest(threads)))
        with one_thread():
            assert torch.get_num_threads() == 1
        assert told == [1, 2]
    honest(before)


def test_a_library_that_comes_later_is_limited_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    with one_thread():
        pass
    looked, honest = list[int](), threadpoolctl.ThreadpoolController
    monkeypatch.setattr(threadpoolctl, "ThreadpoolController", lambda: looked.append(1) or honest())
    with one_thread():
        assert not looked, "no module is new"
    monkeypatch.setitem(sys.modules, "a_module_that_brings_a_library", sys)
    with one_thread():
        assert looked


def test_threads_are_set_for_torch() -> None:
    before = torch.get_num_threads()
    try:
        for threads in (2, 1):
            set_threads(threads)
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    with pytest.raises(ConfigurationError, match="at least 1"):
        set_threads(0)


def test_the_cpu_computes_in_full_precision() -> None:
    with mixed_precision("cpu"):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


@pytest.mark.parametrize("able", [True, False])
def test_the_cpu_computes_in_bfloat16_only_where_that_is_asked_and_it_has_the_instructions(
    able: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": able, "avx2": True}, raising=False)
    with reduced_precision("cpu"):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == (torch.bfloat16 if able else torch.float32)
    with mixed_precision("cpu"):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


@pytest.mark.bits
def test_a_party_with_forests_never_loads_torch() -> None:
    program = (
        "import sys; import collegium.parties.party, collegium.parties.teachers.array_teachers;"
        "from collegium.models.devices import check_device, set_threads; check_device('auto'); set_threads(1);"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_auto_loads_torch_only_where_there_is_a_driver() -> None:
    """Torch takes seconds to load. Where a driver is there, torch says whether it finds a GPU."""
    program = (
        "import sys; from collegium.models import devices; devices.resolve_device('auto');"
        "sys.exit(('torch' in sys.modules) != devices._has_driver())"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
