"""`collegium nvflare`: the job of a consortium, and the policy by which a site agrees to it."""

from pathlib import Path
from typing import Annotated

import typer

from collegium.coordinator.run.announced import announced_terms
from collegium.coordinator.settings.consortium import public_root, read_consortium
from collegium.coordinator.settings.run_config import load_public
from collegium.parties.enrolment import policy_text, promised
from collegium.whole_files import write_new

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Take part over an NVFlare federation.")

ConsortiumFile = Annotated[Path, typer.Argument(help="The consortium's TOML file.", show_default=False)]


@app.command(epilog="Example: collegium nvflare policy consortium.toml")
def policy(
    consortium: ConsortiumFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path("policy.toml"),
) -> None:
    """Write the policy that agrees to what a consortium means to ask, and to nothing weaker: read it before use."""
    config = read_consortium(consortium)
    public = load_public(config.run, public_root(config, None))
    terms = announced_terms(config.run, config.queries.count, public.spec)
    write_new(output, policy_text(terms), "remove it, or name another file by --output")
    typer.echo(f"{promised(terms)}\n{output} is written: read it, and put it beside the site's party.toml")


@app.command(epilog="Example: collegium nvflare allow WORKSPACE")
def allow(
    workspace: Annotated[Path, typer.Argument(help="The folder of NVFlare's start-up kit, or of its simulator.")],
) -> None:
    """Let jobs use Collegium's two components at this site: NVFlare builds none that its resources.json does not list.

    Jobs bring no code: what runs is the package that this site installed.
    """
    from collegium_nvflare.allowed import allow as allow_in

    typer.echo(f"{allow_in(workspace)} lists Collegium's components; start the site again if it runs")


@app.command(epilog="Example: collegium nvflare job consortium.toml --output jobs")
def job(
    consortium: ConsortiumFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder of jobs.")] = Path("jobs"),
    party_file: Annotated[
        str, typer.Option(help="Each site's party.toml, below its workspace; {site} stands for its name.")
    ] = "local/collegium/party.toml",
    place: Annotated[
        str, typer.Option(help="Where the server keeps ledger, keys and labels, below its workspace.")
    ] = "local/collegium",
) -> None:
    """Write the job of a consortium for `nvflare job submit` and `nvflare simulator`: settings, and no code."""
    from collegium_nvflare.job import write_job

    folder = write_job(consortium, output, place=place, party_file=party_file)
    typer.echo(f"{folder} is written; next: nvflare job submit -j {folder}")
