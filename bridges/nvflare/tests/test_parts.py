"""The job that is written, a site's consent, the keys that the server certifies, and what a component imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="NVFlare is not installed: pip install collegium-nvflare")

from collegium.coordinator.settings.consortium import read_consortium
from collegium.errors import ConfigurationError, IdentityError
from collegium.protocol.identities import create_identity
from collegium_nvflare.allowed import allow
from collegium_nvflare.job import agreed_policy, write_job
from collegium_nvflare.members import JobMembers
from collegium_nvflare.trial import Trial


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return Trial.make(tmp_path_factory.mktemp("parts") / "trial", parties=5)


def test_a_job_has_settings_and_public_files_and_no_code(trial: Trial) -> None:
    job = trial.job()
    files = {file.relative_to(job).as_posix() for file in job.rglob("*") if file.is_file()}
    assert files == {
        "meta.json",
        "app_server/config/config_fed_server.json",
        "app_server/config/consortium.toml",
        "app_server/config/pool.csv",
        "app_client/config/config_fed_client.json",
        "app_client/config/task.json",
    }
    meta = json.loads((job / "meta.json").read_text())
    assert meta["deploy_map"] == {"app_server": ["server"], "app_client": list(trial.sites)}
    assert meta["min_clients"] == 4


def test_a_public_file_that_lies_elsewhere_does_not_travel(trial: Trial, tmp_path: Path) -> None:
    moved = tmp_path / "consortium.toml"
    moved.write_text(trial.consortium.read_text().replace('"pool.csv"', f'"{trial.folder / "pool.csv"}"'))
    with pytest.raises(ConfigurationError, match="cannot travel with a job: put a file beside"):
        write_job(moved, tmp_path / "jobs")


def test_the_policy_of_a_consortium_names_its_pool_and_its_noise(trial: Trial) -> None:
    text, promised = agreed_policy(trial.consortium)
    assert "announced was epsilon 4 for one record" in promised
    assert 'mechanisms = ["class-sums"]' in text and "minimum_noise_sums = " in text and 'pools = ["' in text


def test_a_site_allows_two_components_more_and_keeps_its_own_list_and_its_logs(tmp_path: Path) -> None:
    default = tmp_path / "local" / "resources.json.default"
    default.parent.mkdir()
    theirs = {"class_allow_list": ["hospital.Executor"], "allow_log_streaming": True, "components": [1]}
    default.write_text(json.dumps(theirs))
    once = allow(tmp_path).read_text()
    assert allow(tmp_path).read_text() == once
    assert json.loads(once) == {
        "class_allow_list": [
            "hospital.Executor",
            "collegium_nvflare.controller.CoordinatorController",
            "collegium_nvflare.executor.PartyExecutor",
        ],
        "allow_log_streaming": False,
        "components": [1],
    }


def test_a_workspace_without_a_list_keeps_what_nvflare_allows_by_default(tmp_path: Path) -> None:
    listed = json.loads(allow(tmp_path).read_text())["class_allow_list"]
    assert "nvflare.app_common.workflows.fedavg.FedAvg" in listed and listed[-1].startswith("collegium_nvflare.")


def test_resources_that_are_no_json_are_named(tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "resources.json").write_text("{")
    with pytest.raises(ConfigurationError, match="restore it"):
        allow(tmp_path)


def test_a_name_keeps_the_key_that_it_joined_with(trial: Trial, tmp_path: Path) -> None:
    """Planted: somebody else asks under the name of a site that joined before."""
    config = read_consortium(trial.consortium)
    members = JobMembers(config, type(config.place)(tmp_path / "place"))
    name, other = trial.sites[:2]
    own = create_identity(tmp_path / "own", name, "party")
    members.certify(name, own)
    before = members.roster()
    with pytest.raises(IdentityError, match="shows another key than before"):
        members.certify(name, create_identity(tmp_path / "theirs", name, "party"))
    with pytest.raises(IdentityError, match="is not for the site"):
        members.certify(other, own)
    members.certify(name, own)  # of another job
    assert members.roster().signing_keys() == before.signing_keys()
    assert JobMembers(config, type(config.place)(tmp_path / "place")).roster().admitted() == [name]


@pytest.mark.slow
def test_neither_component_imports_torch_flower_or_ray() -> None:
    code = "import sys, collegium_nvflare.controller, collegium_nvflare.executor; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"torch", "flwr", "ray"}.isdisjoint(done.stdout.split())
