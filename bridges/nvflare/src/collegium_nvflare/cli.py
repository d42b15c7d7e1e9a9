"""`collegium nvflare`: the job of a consortium, and the policy by which a site agrees to it."""

import json
from pathlib import Path
from typing import Annotated

import typer

from collegium.whole_files import write_new

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Take part over an NVFlare federation.")

ConsortiumFile = Annotated[Path, typer.Argument(help="The consortium's TOML file.", show_default=False)]


@app.command(epilog="Example: collegium nvflare policy consortium.toml")
def policy(
    consortium: ConsortiumFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path("policy.toml"),
) -> None:
    """Write the policy that agrees to what a consortium means to ask, and to nothing weaker: read it before use."""
    from collegium_nvflare.job import agreed_policy

    text, promised = agreed_policy(consortium)
    write_new(output, text, "remove it, or name another file by --output")
    typer.echo(f"{promised}\n{output} is written: read it, and put it beside the site's party.toml")


@app.command(epilog="Example: collegium nvflare allow WORKSPACE")
def allow(
    workspace: Annotated[Path, typer.Argument(help="The folder of NVFlare's start-up kit, or of its simulator.")],
) -> None:
    """Let jobs use Collegium's two components at this site: NVFlare builds none that its resources.json does not list.

    Jobs bring no code: what runs is the package that this site installed. What a job logs stays at the site, which
    NVFlare would else send to the server: resources.json says allow_log_streaming = false afterwards.
    """
    from collegium_nvflare.allowed import allow as allow_in

    done = f"{allow_in(workspace)} lists Collegium's components and keeps the logs of jobs here"
    typer.echo(f"{done}; start the site again if it runs")


@app.command(epilog="Example: collegium nvflare show WORKSPACE")
def show(
    workspace: Annotated[Path, typer.Argument(help="The folder of this site's start-up kit, which bears its name.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print what this site is, what it would answer and what it has spent; nothing is sent anywhere."""
    from collegium.parties.cli import show_party
    from collegium_nvflare.own_folder import own_folder
    from collegium_nvflare.site import SiteConfig

    folder = own_folder(str(workspace), workspace.resolve().name)
    show_party(SiteConfig.read(folder / "party.toml"), folder, as_json=as_json)


@app.command(epilog="Example: collegium nvflare job consortium.toml --output jobs")
def job(
    consortium: ConsortiumFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder of jobs.")] = Path("jobs"),
) -> None:
    """Write the job of a consortium for `nvflare job submit` and `nvflare simulator`: settings, and no code."""
    from collegium_nvflare.job import write_job

    folder = write_job(consortium, output)
    typer.echo(f"{folder} is written; next: nvflare job submit -j {folder}")


@app.command(epilog="Example: collegium nvflare trial --json")
def trial(
    parties: Annotated[int, typer.Option(min=3, max=64, help="Sites, and party processes beside them.")] = 8,
    repeats: Annotated[int, typer.Option(min=1, help="How often each is run.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run one made consortium over NVFlare's simulator and over our own sessions, and show what each costs."""
    from collegium_nvflare.trial import compared, shown

    result = compared(parties, repeats)
    typer.echo(json.dumps(result) if as_json else shown(result))
