"""`collegium provision`: the consortium's authority, the coordinator's identity, a join code per party."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collegium.clock import utc_now
from collegium.coordinator.cli.options import AsJson, ConfigFile, PublicRoot, StudyName
from collegium.coordinator.membership.enrolment_service import keep_identity, needs_certificate
from collegium.coordinator.membership.members import Members
from collegium.coordinator.report.page import rendered
from collegium.coordinator.settings.consortium import ConsortiumConfig, ConsortiumFolder, public_root, read_consortium
from collegium.data.values import check_party_name
from collegium.errors import CollegiumError, ConfigurationError, IdentityError
from collegium.protocol.certificates import Authority, pem_blocks, read_certificate, read_subject, verify_issued
from collegium.protocol.enrolment import new_code
from collegium.protocol.identities import (
    AUTHORITY,
    create_identity,
    install_certificate,
    load_authority,
    read_authority,
    save_authority,
)
from collegium.settings import line_of
from collegium.whole_files import storing, write_whole

if TYPE_CHECKING:
    from collegium.coordinator.run.screen import Findings
    from collegium.coordinator.settings.run_config import PublicData

app = typer.Typer(add_completion=False)


@app.command(epilog="Example: collegium provision consortium.toml")
def provision(
    config_file: ConfigFile,
    add: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Let one more party enrol.")] = None,
    renew_code: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Make a new join code for a party; the old one is void."),
    ] = None,
    revoke: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Remove a party; its keys are void for good."),
    ] = None,
    authority_file: Annotated[
        Path | None,
        typer.Option(
            "--authority", metavar="FILE", help="The certificate of an authority that is kept apart; at the first time."
        ),
    ] = None,
    study: StudyName = None,
    check: Annotated[bool, typer.Option("--check", help="Only check the file; make nothing.")] = False,
    data_root: PublicRoot = None,
    as_json: AsJson = False,
) -> None:
    """Make the authority, the coordinator's keys and join codes; print the command that each party types.

    The file is checked first: the public data, the plan and what the budget pays for, with a forecast of the labels.
    Run again, it only makes what is missing. A code is shown once; only its digest is kept.
    """
    config = read_consortium(config_file, study)
    if check or not (add or renew_code or revoke):  # a party is revoked at once, whatever became of the pool
        _, found = checked(config_file, config, data_root)
        if check:
            serves = f"coordinator serve {config_file}" + (f" --study {study}" if study is not None else "")
            then = serves if config.place.members.path.exists() else f"provision {config_file}"
            typer.echo(
                json.dumps(asdict(found)) if as_json else "\n".join([*found.lines(), f"next         collegium {then}"])
            )
            return
        for line in found.lines():
            typer.echo(line, err=True)
    folder = config.place
    authority = _authority(folder, config, authority_file)
    keep_identity(folder, config, authority)
    codes = _join_codes(folder, config, add or [], renew_code or [], revoke or [])
    to_sign = _exchange(folder, config, authority) if authority.key is None else 0
    members = folder.members.read()
    lines = {
        name: f"collegium party enrol --coordinator {config.consortium.enrolment} --name {name} --code {code} "
        f"--fingerprint {authority.fingerprint} --folder {name} --parties NAMES --data FILE --label COLUMN "
        "--group PERSON"
        for name, code in codes.items()
    }
    made = {
        "folder": str(folder.path),
        "fingerprint": authority.fingerprint,
        "commands": lines,
        "roster_digest": members.roster().digest,
        "enrolled": members.roster().admitted(),
        "expected": members.expected(),
        "requests_to_sign": to_sign,
    }
    if as_json:
        typer.echo(json.dumps(made))
        return
    told = {"requests": folder.requests, "hours": config.consortium.code_hours, "add": add, "config_file": config_file}
    typer.echo(rendered("coordinator.cli", "provisioned.txt.j2", made, **told))


def checked(config_file: Path, config: ConsortiumConfig, data_root: Path | None) -> "tuple[PublicData, Findings]":
    """The public data, and what can be known before anything is spent; an error names the file to be corrected."""
    from collegium.coordinator.run.checks import check_consortium
    from collegium.coordinator.settings.run_config import load_public

    try:
        public = load_public(config.run, public_root(config, data_root))
        return public, check_consortium(config, public)
    except CollegiumError as error:
        key = str(error).partition(":")[0].split(".")
        line = line_of(config_file.read_text(encoding="utf-8"), key)
        raise type(error)(f"{config_file}: {f'line {line}: ' if line else ''}{error}") from error


def _authority(folder: ConsortiumFolder, config: ConsortiumConfig, kept_apart: Path | None) -> Authority:
    if kept_apart is None and (folder.authority / AUTHORITY).exists():
        return load_authority(folder.authority)
    for place in (folder.path, folder.authority, folder.identity):
        with storing(f"make {place}"):
            place.mkdir(parents=True, exist_ok=True)
            place.chmod(0o700)
    authority = Authority.create(config.name) if kept_apart is None else read_authority(kept_apart)
    save_authority(authority, folder.authority)
    return authority


def _exchange(folder: ConsortiumFolder, config: ConsortiumConfig, authority: Authority) -> int:
    """Take in what the authority signed, and write down what it has still to sign; how many requests those are."""
    if folder.certificates.exists():
        for pem in pem_blocks(folder.certificates.read_bytes()):
            certificate = read_certificate(pem)
            verify_issued(certificate, authority.certificate)
            if read_subject(certificate).role == "coordinator":
                install_certificate(folder.identity, "coordinator", pem, authority.pem)
            else:
                folder.members.change(lambda members, pem=pem: (members.certified(pem.decode()), None))  # type: ignore[misc]
        folder.certificates.unlink()
    requests = [member.request_pem for member in folder.members.read().members.values() if member.request_pem]
    if needs_certificate(folder, config):
        requests.insert(0, create_identity(folder.identity, "coordinator", "coordinator").decode())
    if requests:
        write_whole(folder.requests, "".join(requests), mode=0o600)
    else:
        folder.requests.unlink(missing_ok=True)
    return len(requests)


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
        fresh = [name for name in config.consortium.parties if name not in members.members]
        unknown = sorted(set(renew) - set(members.members) - set(fresh))
        if unknown:
            raise IdentityError(f"nobody is called {', '.join(unknown)}; use --add to let one more party join")
        codes = {name: new_code() for name in dict.fromkeys([*fresh, *add, *renew])}
        for name in add:
            check_party_name(name, IdentityError)
            if name in members.members and members.members[name].expected:
                raise IdentityError(f"{name} is expected or enrolled already; use --renew-code for a new code")
        for name, code in codes.items():
            members = members.with_code(name, code, now, hours)
        return members, codes

    return folder.members.change(step, first=Members(consortium=config.name))
