"""`collegium authority`: an authority whose key stays on a machine apart from the coordinator."""

from pathlib import Path
from typing import Annotated

import typer

from collegium.errors import IdentityError
from collegium.protocol.certificates import CERTIFICATE_DAYS, Authority, pem_blocks, read_request
from collegium.protocol.identities import AUTHORITY, load_authority, save_authority
from collegium.whole_files import read_whole, write_whole

app = typer.Typer(no_args_is_help=True, add_completion=False, help="An authority that is kept apart.")

Vault = Annotated[Path, typer.Option("--folder", help="Where the authority's encrypted key is.", show_default=False)]
PassphraseFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Read the passphrase here; by default it is asked for.")
]


@app.command(epilog="Example: collegium authority create oaks --folder vault")
def create(
    name: Annotated[str, typer.Argument(help="The consortium's name.", show_default=False)],
    folder: Vault,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Make an authority: its certificate, and its key, encrypted with a passphrase."""
    authority = Authority.create(name)
    save_authority(authority, folder, _passphrase(passphrase_file, new=True))
    typer.echo(f"fingerprint  {authority.fingerprint}")
    typer.echo(f"Take {folder / AUTHORITY} to the coordinator, and run there:")
    typer.echo(f"collegium provision consortium.toml --authority {AUTHORITY}")


@app.command(epilog="Example: collegium authority sign requests.pem --folder vault --host coordinator.example.org")
def sign(
    requests: Annotated[Path, typer.Argument(help="What collegium provision wrote.", show_default=False)],
    folder: Vault,
    host: Annotated[list[str] | None, typer.Option(help="How others reach the coordinator, for its request.")] = None,
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long the certificates are valid.")] = CERTIFICATE_DAYS,
    output: Annotated[Path, typer.Option(metavar="FILE", help="The certificates.")] = Path("certificates.pem"),
    yes: Annotated[bool, typer.Option("--yes", help="Sign without asking.")] = False,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Show who asks for a certificate, and sign what you agree to: nobody else can admit a party."""
    asked = [(pem, *read_request(pem)) for pem in pem_blocks(read_whole(requests))]
    if not host and any(role == "coordinator" for _, _, role, _ in asked):
        raise IdentityError("the coordinator's request needs the host by which others reach it: give it by --host")
    for _, name, role, key in asked:
        typer.echo(f"{role:<12}{name:<24}signing key {key.hex()[:16]}…")
    if not yes:
        typer.confirm(f"Sign these {len(asked)}?", abort=True)
    authority = load_authority(folder, _passphrase(passphrase_file))
    issued = [
        authority.issue(pem, name=name, role=role, hosts=host or [] if role == "coordinator" else [], days=days)
        for pem, name, role, _ in asked
    ]
    write_whole(output, b"".join(issued))
    typer.echo(f"{output}: put it into the consortium's folder, and run collegium provision there")


def _passphrase(file: Path | None, *, new: bool = False) -> bytes:
    if file is None:
        return str(typer.prompt("passphrase", hide_input=True, confirmation_prompt=new)).encode()
    return read_whole(file, "; it should hold the passphrase").strip()
