"""`collegium provision`: the consortium's authority, the coordinator's identity and one join code per party."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from cryptography.x509 import SubjectAlternativeName

from collegium.coordinator.consortium import ConsortiumConfig, ConsortiumFolder, read_consortium
from collegium.coordinator.members import Members, utc_now
from collegium.protocol.certificates import Authority, Role, read_certificate
from collegium.protocol.enrolment import new_code
from collegium.protocol.errors import ConfigurationError, IdentityError, StorageError
from collegium.protocol.identities import AUTHORITY_KEY, CERTIFICATE, issue_kit, load_authority, save_authority
from collegium.protocol.task import PARTY_NAME

app = typer.Typer(add_completion=False)

RENEW_BEFORE = timedelta(days=30)
"""The coordinator's own certificate is made anew when it has less than this left."""

_COORDINATOR: Role = "coordinator"


@app.command(epilog="Example: collegium provision consortium.toml")
def provision(
    config_file: Annotated[Path, typer.Argument(help="The consortium's TOML file.", show_default=False)],
    add: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Let one more party join.")] = None,
    renew_code: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A new join code for a party; its old one is void.")
    ] = None,
    revoke: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Admit a party no more; its keys are void for good.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make the authority, the coordinator's keys and a join code per party; print what each party types.

    A second time it only does what is missing: codes are shown once, and only their digests are kept.
    """
    config = read_consortium(config_file)
    folder = ConsortiumFolder(config.consortium.folder)
    authority = _authority(folder, config)
    _identity(folder, config, authority)
    codes = _join_codes(folder, config, add or [], renew_code or [], revoke or [])
    members = folder.members.read()
    lines = {
        name: f"collegium party enrol --coordinator {config.consortium.enrolment} --name {name} --code {code} "
        f"--fingerprint {authority.fingerprint} --folder {name}"
        for name, code in codes.items()
    }
    if as_json:
        result = {
            "folder": str(folder.path),
            "fingerprint": authority.fingerprint,
            "commands": lines,
            "enrolled": members.roster().admitted(),
            "expected": members.expected(),
        }
        typer.echo(json.dumps(result))
        return
    typer.echo(f"folder       {folder.path}")
    typer.echo(f"fingerprint  {authority.fingerprint}")
    typer.echo(f"enrolled     {', '.join(members.roster().admitted()) or 'nobody yet'}")
    if lines:
        typer.echo(f"\nEach party runs its own line, once, within {config.consortium.code_hours:g} hours:")
    for line in lines.values():
        typer.echo(f"\n{line}")


def _authority(folder: ConsortiumFolder, config: ConsortiumConfig) -> Authority:
    if (folder.authority / AUTHORITY_KEY).exists():
        return load_authority(folder.authority)
    for place in (folder.path, folder.authority, folder.identity):
        try:
            place.mkdir(parents=True, exist_ok=True)
            place.chmod(0o700)
        except OSError as error:
            raise StorageError(f"cannot make {place}: {error.strerror}") from error
    authority = Authority.create(config.name)
    save_authority(authority, folder.authority)
    return authority


def _identity(folder: ConsortiumFolder, config: ConsortiumConfig, authority: Authority) -> None:
    """The coordinator's certificate, made anew where it is missing, ends soon or is for another host."""
    held = folder.identity / CERTIFICATE
    hosts = [config.consortium.host]
    if held.exists():
        certificate = read_certificate(held.read_bytes())
        named = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
        known = {str(name.value) for name in named}
        if hosts[0] in known and certificate.not_valid_after_utc - utc_now() > RENEW_BEFORE:
            return
    days = max(config.consortium.certificate_days, RENEW_BEFORE.days + 1)
    issue_kit(authority, folder.identity, _COORDINATOR, _COORDINATOR, hosts=hosts, days=days)


def _join_codes(
    folder: ConsortiumFolder, config: ConsortiumConfig, add: list[str], renew: list[str], revoke: list[str]
) -> dict[str, str]:
    """Change the members as asked; the new codes by party."""
    now, hours = utc_now(), config.consortium.code_hours

    def step(members: Members) -> tuple[Members, dict[str, str]]:
        if members.consortium != config.name:
            raise ConfigurationError(f"{folder.path} is the folder of {members.consortium!r}, not of {config.name!r}")
        for name in revoke:
            members = members.without(name)
        unknown = sorted(set(renew) - set(members.members) - set(config.consortium.parties))
        if unknown:
            raise IdentityError(f"no party is called {', '.join(unknown)}; use --add to let one more join")
        fresh = [name for name in config.consortium.parties if name not in members.members]
        codes = {name: new_code() for name in dict.fromkeys([*fresh, *add, *renew])}
        for name in add:
            if PARTY_NAME.fullmatch(name) is None:
                raise IdentityError(f"{name[:64]!r} is not a name: use up to 63 lower-case letters, digits and hyphens")
            if name in members.members and members.members[name].expected:
                raise IdentityError(f"{name} is expected or enrolled already; use --renew-code for a new code")
        for name, code in codes.items():
            members = members.with_code(name, code, now, hours)
        return members, codes

    return folder.members.change(step, first=Members(consortium=config.name))
