"""What is written for Flower's deployment engine is what this version of Flower reads, and keeps what is secret."""

from __future__ import annotations

import socket
import ssl
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from collegium.cli import main
from collegium.errors import ConfigurationError, Unreachable
from collegium.settings import validate_config
from collegium.simulations import simulate
from collegium.simulations.config import SimulationConfig
from collegium.simulations.flower_deployment import write_deployment
from collegium.simulations.prepared import PreparedRun, prepare_run
from collegium.simulations.simulate import on_engine

DIGITS = {"source": "digits", "split": "all", "shuffle_seed": 0}
SETTINGS: dict[str, Any] = {
    "name": "three",
    "task": {"classes": [str(digit) for digit in range(10)], "inputs": {"kind": "image", "height": 8, "width": 8}},
    "private": DIGITS | {"stop": 30},
    "pool": DIGITS | {"start": 1700},
    "partition": {"kind": "iid", "parties": 3},
    "budget": {"epsilon": 5.0},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> PreparedRun:
    config = validate_config(SETTINGS, SimulationConfig, "test")
    return prepare_run(config, tmp_path_factory.mktemp("deployed") / "run", data_root=None)


@pytest.fixture(scope="module")
def scripts(run: PreparedRun) -> list[Path]:
    return write_deployment(run, "localhost:9443")


@pytest.fixture
def base(run: PreparedRun, scripts: list[Path]) -> Path:
    return run.folder / "deployment"


def commands(script: Path) -> list[list[str]]:
    """What a script runs, as the shell itself splits it; Flower's programs say what they were given instead."""
    names = ("flwr", "flower-superlink", "flower-supernode")
    told = "".join(f'{name}() {{ printf "%s\\n" {name} "$@" ""; }}\n' for name in names)
    text = told + script.read_text().replace("exec ", "")
    out = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True).stdout
    return [block.split("\n") for block in out.strip("\n").split("\n\n")]


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    """TLS in memory; raises what the client finds wrong with the server."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    ours = client.wrap_bio(to_client, to_server, server_hostname=host)
    for _ in range(4):
        for end in (ours, theirs):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue


def test_the_scripts_come_in_the_order_in_which_they_are_started(scripts: list[Path]) -> None:
    names = [script.name for script in scripts]
    assert names == ["superlink.sh", "register.sh", *(f"node-party-{i}.sh" for i in range(3)), "run.sh"]
    assert all(script.stat().st_mode & stat.S_IXUSR for script in scripts)


def test_flower_is_told_to_stay_offline_and_quiet_in_every_script(scripts: list[Path], base: Path) -> None:
    for script in scripts:
        text = script.read_text()
        assert "export FLWR_TELEMETRY_ENABLED=0\n" in text
        assert f"export FLWR_HOME={base}" in text
        assert "--insecure" not in text


def test_flower_reads_the_connection(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flwr.cli.flower_config import read_superlink_connection

    monkeypatch.setenv("FLWR_HOME", str(base / "flower"))
    connection = read_superlink_connection()
    assert (connection.name, connection.address, connection.insecure) == ("deployment", "localhost:9443", False)
    assert connection.root_certificates == str(base / "superlink" / "authority.pem")


def test_flower_takes_the_options_of_its_servers(scripts: list[Path]) -> None:
    from flwr.superlink.cli.flower_superlink import _parse_args_run_superlink
    from flwr.supernode.cli.flower_supernode import _parse_args_run_supernode

    (command,) = commands(scripts[0])
    served = _parse_args_run_superlink().parse_args(command[1:])
    assert (served.host, served.port, served.enable_supernode_auth) == ("localhost", 9443, True)
    assert not served.insecure
    ports = set()
    for index, script in enumerate(scripts[2:5]):
        (command,) = commands(script)
        asked = _parse_args_run_supernode().parse_args(command[1:])
        assert asked.superlink == "localhost:9443" and not asked.insecure
        assert asked.node_config == f"partition-id={index} num-partitions=3"
        ports.add(asked.port)
    assert len(ports) == 3 and 9443 not in ports


def test_each_party_is_registered_with_its_own_key(scripts: list[Path], base: Path) -> None:
    registered = [(command[-1], Path(command[3])) for command in commands(scripts[1])]
    assert [name for name, _ in registered] == ["party-0", "party-1", "party-2"]
    seen = set()
    for name, public in registered:
        private = base / "nodes" / name / "key"
        assert stat.S_IMODE(private.stat().st_mode) == 0o600
        key = serialization.load_ssh_private_key(private.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        assert key.public_key() == serialization.load_ssh_public_key(public.read_bytes())
        seen.add(public.read_bytes())
    assert len(seen) == 3


def test_supernodes_accept_the_superlink_under_its_own_host_alone(base: Path) -> None:
    link = base / "superlink"
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(link / "certificate.pem", link / "tls-key.pem")
    client = ssl.create_default_context(cafile=str(link / "authority.pem"))
    handshake(server, client, "localhost")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, client, "elsewhere.example")


def test_the_authority_that_could_make_another_superlink_is_not_kept(base: Path) -> None:
    assert not list(base.rglob("authority-key.pem"))


def test_flower_packs_the_app_and_it_names_the_installed_package(base: Path, run: PreparedRun) -> None:
    from flwr.cli.build import build_fab_from_disk
    from flwr.cli.config_utils import load_and_validate

    config, _ = load_and_validate(base / "app" / "pyproject.toml")
    assert config["tool"]["flwr"]["app"]["config"] == {"folder": str(run.folder)}
    packed = build_fab_from_disk(base / "app")
    assert b"collegium_run.py" in packed and b"records" not in packed


def test_a_deployment_is_not_written_over(run: PreparedRun, scripts: list[Path]) -> None:
    with pytest.raises(ConfigurationError, match="holds a deployment already"):
        write_deployment(run, "localhost:9443")


@pytest.mark.parametrize("address", ["localhost", "localhost:0", "localhost:65534", ":9443"])
def test_an_address_that_cannot_serve_is_refused(address: str, run: PreparedRun) -> None:
    with pytest.raises(ConfigurationError):
        write_deployment(run, address)


def engine_of(run: PreparedRun, **engine: Any) -> PreparedRun:
    config = validate_config(SETTINGS | {"engine": engine}, SimulationConfig, "test")
    return PreparedRun(config, run.folder, run.cohort, run.private, run.public)


def test_ray_is_started_for_the_run_or_a_cluster_joined_whose_cores_are_its_own(
    run: PreparedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(simulate, "prepare_flower", lambda folder: None)
    monkeypatch.setattr("flwr.simulation.run_simulation", lambda *_, backend_config: None)
    monkeypatch.setattr("ray.init", lambda **arguments: asked.append(arguments))
    with socket.create_server(("127.0.0.1", 0)) as cluster:
        address = f"127.0.0.1:{cluster.getsockname()[1]}"
        for engine in ({"workers": 3}, {"ray": address, "workers": 3}):
            on_engine(engine_of(run, **engine), lambda parties: None)
    wanted = [{"address": "local", "num_cpus": 3}, {"address": address}]
    assert [{name: args[name] for name in ("address", "num_cpus") if name in args} for args in asked] == wanted


def test_a_cluster_that_is_not_there_is_told_before_ray_looks_for_it(run: PreparedRun) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(Unreachable, match=f"no Ray cluster at {address}"):
        on_engine(engine_of(run, ray=address), lambda parties: None)
    with pytest.raises(ConfigurationError, match="host:port"):
        on_engine(engine_of(run, ray="head"), lambda parties: None)


def test_an_engine_that_breaks_down_is_told_in_one_line(run: PreparedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, backend_config: object) -> None:
        try:
            raise TimeoutError("an actor died")
        except TimeoutError as error:
            raise RuntimeError("An error was encountered.") from error

    monkeypatch.setattr(simulate, "prepare_flower", lambda folder: None)
    monkeypatch.setattr("ray.init", lambda **_: None)
    monkeypatch.setattr("flwr.simulation.run_simulation", broken)
    with pytest.raises(Unreachable, match="an actor died"):
        on_engine(run, lambda parties: None)


def test_ray_that_does_not_start_is_told_in_one_line(run: PreparedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(**_: object) -> None:
        raise ConnectionError("Ray did not start")

    monkeypatch.setattr(simulate, "prepare_flower", lambda folder: None)
    monkeypatch.setattr("ray.init", absent)
    with pytest.raises(Unreachable, match="Ray did not start"):
        on_engine(run, lambda parties: None)


def test_the_command_prints_the_scripts_that_it_wrote(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = [
        'name = "three"',
        "budget.epsilon = 5.0",
        f"task.classes = {SETTINGS['task']['classes']}",
        'task.inputs = { kind = "image", height = 8, width = 8 }',
        'private = { source = "digits", split = "all", stop = 30 }',
        'pool = { source = "digits", split = "all", start = 1700 }',
        'partition = { kind = "iid", parties = 3 }',
    ]
    config = tmp_path / "three.toml"
    config.write_text("\n".join(lines) + "\n", encoding="utf-8")
    arguments = ["simulate", str(config), "--run", str(tmp_path / "run"), "--deployment", "localhost:9443"]
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    printed = [Path(line.strip()) for line in capfd.readouterr().out.splitlines()[1:]]
    assert ended.value.code == 0
    assert [path.name for path in printed][::5] == ["superlink.sh", "run.sh"] and all(map(Path.is_file, printed))
    with pytest.raises(SystemExit) as again:
        main(arguments)
    assert again.value.code != 0
    assert capfd.readouterr().err.startswith("ConfigurationError: ")
