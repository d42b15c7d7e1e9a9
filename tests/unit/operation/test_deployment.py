"""deploy/: every command in it exists, no container runs as root, and probes ask what a coordinator serves."""

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import yaml
from click import Command, Group
from support.snapshots import snapshot
from typer.main import get_command

from collegium.coordinator.watching.metrics import SnapshotMetrics
from collegium.coordinator.watching.server import StatusServer

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
WORKLOADS = ("StatefulSet", "Job")
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
MANIFESTS = {
    file.name: list(yaml.safe_load_all(file.read_text()))
    for file in sorted((DEPLOY / "kubernetes").glob("*/*.yaml"))
    if file.name != "kustomization.yaml"
}
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def _check_command(words: list[str]) -> None:
    """Parses the words as the command line does, without running anything; click's UsageError where it refuses."""
    from collegium.cli import app

    command: Command = get_command(app)
    context = command.make_context("collegium", list(words), resilient_parsing=False)
    while isinstance(command, Group):
        name, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None and name is not None
        command, context = found, found.make_context(name, rest, parent=context)


def _containers() -> dict[str, dict[str, Any]]:
    return {
        f"{file} {document['metadata']['name']}": document["spec"]["template"]["spec"]
        for file, documents in MANIFESTS.items()
        for document in documents
        if document["kind"] in WORKLOADS
    }


def _commands() -> dict[str, list[str]]:
    found = {f"compose {name}": service["command"] for name, service in COMPOSE["services"].items()}
    found |= {name: pod["containers"][0]["args"] for name, pod in _containers().items()}
    for unit in UNITS:
        (line,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), flags=re.MULTILINE)
        program, *words = shlex.split(line)
        assert program.endswith("/bin/collegium")
        found[unit.name] = words
    return found


COMMANDS = _commands()


def test_there_is_a_command_for_each_service_unit_and_pod() -> None:
    assert len(COMMANDS) == 6 + 2 + 4


@pytest.mark.parametrize("where", COMMANDS)
def test_the_command_line_accepts_every_command(where: str) -> None:
    _check_command(COMMANDS[where])


def test_a_command_that_does_not_exist_would_be_seen() -> None:
    with pytest.raises(Exception, match="No such option"):
        _check_command(["party", "serve", "party.toml", "--detach"])


def test_no_container_runs_as_root_or_may_become_root() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    last_stage = lines[max(number for number, line in enumerate(lines) if line.startswith("FROM ")) :]
    (user,) = [line.split()[1] for line in last_stage if line.startswith("USER ")]
    assert user == "10001:10001"
    for service in COMPOSE["services"].values():
        assert service["user"] == user and service["cap_drop"] == ["ALL"] and service["read_only"] is True
        assert "no-new-privileges:true" in service["security_opt"]
    for pod in _containers().values():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}" == user
        (container,) = pod["containers"]
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert all("NoNewPrivileges=yes" in unit.read_text() for unit in UNITS)


def test_the_image_installs_extras_that_exist_and_starts_the_installed_command() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r"^ARG EXTRAS=(.+)$", text, flags=re.MULTILINE)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert 'ENTRYPOINT ["collegium"]' in text and "collegium" in project["scripts"]
    kept = {line.removeprefix("!") for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()}
    (copied,) = re.findall(r"^COPY (pyproject.*) \./$", text, flags=re.MULTILINE)
    assert all((ROOT / name).exists() and name in kept for name in [*copied.split(), "src"])


def test_probes_ask_a_page_that_the_coordinator_serves_at_the_port_that_it_is_given() -> None:
    pod = _containers()["coordinator.yaml collegium-coordinator"]
    (container,) = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    listens = int(container["args"][container["args"].index("--status") + 1].rpartition(":")[2])
    for probe in ("startupProbe", "livenessProbe"):
        asked = container[probe]["httpGet"]
        assert is_served(asked["path"]) and ports[asked["port"]] == listens
    (url,) = re.findall(
        r"http://127\.0\.0\.1:(\d+)(/\w+)", COMPOSE["services"]["coordinator"]["healthcheck"]["test"][-1]
    )
    command = COMPOSE["services"]["coordinator"]["command"]
    assert is_served(url[1]) and command[command.index("--status") + 1].endswith(f":{url[0]}")


def is_served(path: str) -> bool:
    """Whether a coordinator's page answers this path, as it does not answer any."""
    with StatusServer("127.0.0.1:0", snapshot) as server:
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"{server.url}nowhere")
        with urlopen(f"{server.url.rstrip('/')}{path}") as answer:
            return bool(answer.status == 200)


def test_no_folder_is_shared_and_no_party_runs_twice() -> None:
    folders = [volume.partition(":")[0] for service in COMPOSE["services"].values() for volume in service["volumes"]]
    assert len(set(folders)) == len(folders) == 6
    for name, documents in MANIFESTS.items():
        claims = {one["metadata"]["name"] for one in documents if one["kind"] == "PersistentVolumeClaim"}
        (workload,) = [one for one in documents if one["kind"] in WORKLOADS]
        used = [volume["persistentVolumeClaim"] for volume in workload["spec"]["template"]["spec"]["volumes"][:1]]
        if workload["kind"] == "Job":  # before the pod that serves, in its claim; it is not tried again
            assert workload["spec"]["backoffLimit"] == 0
            claims = {"provision.yaml": {"collegium-coordinator"}, "enrol.yaml": {"collegium-party"}}[name]
        else:
            assert workload["spec"]["replicas"] == 1
        assert {claim["claimName"] for claim in used} == claims


def test_nothing_may_connect_to_a_party() -> None:
    assert not any(one["kind"] == "Service" for one in MANIFESTS["party.yaml"])
    (policy,) = [one["spec"] for one in MANIFESTS["party.yaml"] if one["kind"] == "NetworkPolicy"]
    assert policy["ingress"] == [] and set(policy["policyTypes"]) == {"Ingress", "Egress"}
    assert "ports" not in COMPOSE["services"]["clinic-1"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_reads_every_line_of_the_units(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name  # with a program and a user that this machine has
    copy.write_text(
        unit.read_text().replace("/opt/collegium/bin/collegium", "/bin/true").replace("=collegium\n", "=\n")
    )
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True)
    assert [line for line in done.stderr.splitlines() if unit.name in line] == []


def test_the_page_answers_to_the_names_of_its_services_and_to_no_other() -> None:
    command = _containers()["coordinator.yaml collegium-coordinator"]["containers"][0]["args"]
    services = {
        one["metadata"]["name"]: one["spec"] for one in MANIFESTS["coordinator.yaml"] if one["kind"] == "Service"
    }
    name = command[command.index("--status-host") + 1]
    assert [port["targetPort"] for port in services[name]["ports"]] == ["status"] and services[name][
        "type"
    ] == "ClusterIP"
    with StatusServer("127.0.0.1:0", snapshot, hosts=[name]) as server:
        for host, served in ((name, True), (f"{name}:8080", True), ("elsewhere.example", False)):
            asked = Request(f"{server.url}metrics", headers={"Host": host})
            if served:
                assert b"collegium_epsilon_left" in urlopen(asked).read()
            else:
                with pytest.raises(HTTPError, match="421"):
                    urlopen(asked)


EMITTED = {sample.name for metric in SnapshotMetrics(snapshot).collect() for sample in metric.samples}
NAMED = re.compile(r"collegium_[a-z_]+")


def named_in(path: str) -> set[str]:
    """The metrics that the expressions of a dashboard, of alert rules or of a page name."""
    return set(NAMED.findall((ROOT / path).read_text()))


@pytest.mark.parametrize("path", ["deploy/prometheus/alerts.yaml", "deploy/grafana/collegium.json"])
def test_every_metric_that_is_watched_is_one_that_a_coordinator_has(path: str) -> None:
    assert named_in(path) <= EMITTED and len(named_in(path)) >= 5
    assert "collegium_round_second" not in EMITTED, "a name that is misspelt would be seen"


def test_the_dashboard_shows_every_metric_and_no_panel_twice() -> None:
    board = json.loads((DEPLOY / "grafana" / "collegium.json").read_text())
    titles = [panel["title"] for panel in board["panels"]]
    assert len(set(titles)) == len(titles) and all(panel["targets"] for panel in board["panels"])
    assert {name.removesuffix("_bucket") for name in EMITTED} - named_in("deploy/grafana/collegium.json") == {
        "collegium_round_seconds",
        "collegium_epsilon_left",  # the budget and what is spent are shown
    }


def test_every_alert_says_what_it_is_about() -> None:
    (group,) = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())["groups"]
    assert all(rule["annotations"]["summary"].endswith(".") and rule["expr"] for rule in group["rules"])
