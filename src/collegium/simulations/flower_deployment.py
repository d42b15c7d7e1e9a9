"""What Flower's deployment engine needs to carry a prepared run: one SuperLink, and one SuperNode for each party.

    superlink/          its certificate and keys, and the authority that every SuperNode trusts
    nodes/PARTY/        a SuperNode's key pair: it proves by it which party it is
    app/                the app that `flwr run` submits: two names of the installed package
    flower/config.toml  the connection that Flower's command line uses
    superlink.sh, register.sh, node-PARTY.sh, run.sh    to be started in this order

The scripts keep Flower offline and without telemetry.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from collegium.errors import ConfigurationError, StorageError
from collegium.protocol.certificates import Authority
from collegium.protocol.channels import split_address
from collegium.protocol.identities import AUTHORITY, CERTIFICATE, TLS_KEY, issue_kit
from collegium.settings import toml_value
from collegium.simulations.flower_env import flower_settings
from collegium.simulations.prepared import PreparedRun

FOLDER = "deployment"
CONNECTION = "deployment"
APP = """\
[project]
name = "collegium-run"
version = "1.0.0"
description = "A run of Collegium"
license = "Apache-2.0"

[tool.flwr.app]
publisher = "collegium"
fab-include = ["collegium_run.py"]

[tool.flwr.app.components]
serverapp = "collegium_run:server_app"
clientapp = "collegium_run:client_app"

[tool.flwr.app.config]
folder = {folder}
"""
APP_MODULE = (
    'from collegium.simulations.flower_app import client_app, server_app\n\n__all__ = ["client_app", "server_app"]\n'
)


def write_deployment(run: PreparedRun, address: str) -> list[Path]:
    """Write keys, configuration and scripts to ``deployment`` in the run's folder; returns the scripts in order.

    Parameters
    ----------
    address : ``host:port`` at which SuperNodes and `flwr run` reach the SuperLink; its certificate is for that host.
        The ports after it are the SuperNodes' own, on the loopback.

    Raises
    ------
    ConfigurationError
        If the address is none, leaves too few ports above it, or there is a deployment already.
    StorageError
        If the folder cannot be written.
    """
    host, port = split_address(address)
    members = run.cohort
    if not 1 <= port <= 65535 - len(members):
        raise ConfigurationError(f"{len(members)} SuperNodes need as many ports above {port}: choose another port")
    base = run.folder / FOLDER
    if base.exists():
        raise ConfigurationError(f"{base} holds a deployment already: use its scripts, or remove it to make another")
    try:
        return _write(run, base, host, port)
    except OSError as error:
        raise StorageError(f"cannot write {base}: {error.strerror}") from error


def _write(run: PreparedRun, base: Path, host: str, port: int) -> list[Path]:
    members = run.cohort
    base.mkdir(mode=0o700)
    link = base / "superlink"
    # The authority's key is not kept: no other server can pass for this one.
    issue_kit(Authority.create(run.config.name), link, "superlink", "coordinator", hosts=[host])
    (base / "app").mkdir()
    (base / "app" / "pyproject.toml").write_text(APP.format(folder=toml_value(str(run.folder))), encoding="utf-8")
    (base / "app" / "collegium_run.py").write_text(APP_MODULE, encoding="utf-8")
    at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    (base / "flower").mkdir()
    (base / "flower" / "config.toml").write_text(
        f"[superlink]\ndefault = {toml_value(CONNECTION)}\n\n[superlink.{CONNECTION}]\n"
        f"address = {toml_value(at)}\nroot-certificates = {toml_value(str(link / AUTHORITY))}\n",
        encoding="utf-8",
    )
    serve = ["flower-superlink", "--host", host, "--port", str(port), "--enable-supernode-auth"]
    serve += ["--disable-runtime-dependency-installation", "--ssl-ca-certfile", str(link / AUTHORITY)]
    serve += ["--ssl-certfile", str(link / CERTIFICATE), "--ssl-keyfile", str(link / TLS_KEY)]
    scripts = [_script(base / "superlink.sh", link, serve)]
    registrations = []
    for index, member in enumerate(members):
        own = base / "nodes" / member.name
        public = _write_key_pair(own)
        node_config = f"partition-id={index} num-partitions={len(members)}"
        attend = ["flower-supernode", "--superlink", at, "--root-certificates", str(link / AUTHORITY)]
        attend += ["--auth-supernode-private-key", str(own / "key"), "--port", str(port + 1 + index)]
        scripts.append(_script(base / f"node-{member.name}.sh", own, [*attend, "--node-config", node_config]))
        registrations.append(["flwr", "supernode", "register", str(public), CONNECTION, "--name", member.name])
    submit = ["flwr", "run", str(base / "app"), CONNECTION, "--stream"]
    scripts.insert(1, _script(base / "register.sh", base, *registrations))
    return [*scripts, _script(base / "run.sh", base, submit)]


def _write_key_pair(folder: Path) -> Path:
    """A P-384 key pair in OpenSSH's format, as Flower reads it; returns the public key's file."""
    key = ec.generate_private_key(ec.SECP384R1())
    folder.mkdir(parents=True, mode=0o700)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    with os.fdopen(os.open(folder / "key", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(private)
    public = folder / "key.pub"
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH) + b"\n"
    )
    return public


def _script(path: Path, home: Path, *commands: list[str]) -> Path:
    """A shell script that runs these commands with Flower's own folder in ``home``; the last takes its place."""
    settings: Mapping[str, str] = flower_settings(home)
    lines = ["#!/bin/sh", "set -e", *(f"export {name}={shlex.quote(value)}" for name, value in settings.items())]
    *before, last = [shlex.join(command) for command in commands]
    path.write_text("\n".join([*lines, *before, f"exec {last}"]) + "\n", encoding="utf-8")
    path.chmod(0o700)
    return path
