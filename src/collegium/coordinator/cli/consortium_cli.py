"""`collegium consortium rehearse`: the whole run on invented records, before anything is spent."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from collegium.coordinator.cli.options import AsJson, ConfigFile, LogLines, PublicRoot, StudyName, WaitSeconds
from collegium.coordinator.settings.consortium import public_root, read_consortium
from collegium.errors import QuorumNotReached
from collegium.logs import LogFormat, configure_logging

app = typer.Typer(no_args_is_help=True, add_completion=False, help="A consortium as a whole.")


@app.callback()
def _group() -> None:
    """Keep `rehearse` a subcommand."""


@app.command(epilog="Example: collegium consortium rehearse consortium.toml")
def rehearse(
    config_file: ConfigFile,
    study: StudyName = None,
    wait_s: WaitSeconds = 30.0,
    patience_s: Annotated[
        float, typer.Option("--give-up", min=0, metavar="SECONDS", help="How long a quorum may take to connect.")
    ] = 600.0,
    data_root: PublicRoot = None,
    log_format: LogLines = LogFormat.TEXT,
    as_json: AsJson = False,
) -> None:
    """Do the whole run on records that the parties invent: over the real machines, keys and policies, for nothing.

    Each institution runs `collegium party rehearse`, which never opens its records or its account. The ledger is
    another one; nothing is spent. At the end it says who is ready, or what failed, with seconds and bytes.
    """
    from collegium.coordinator.service.rehearsal import rehearse as drive
    from collegium.coordinator.settings.run_config import load_public

    configure_logging(log_format)
    config = read_consortium(config_file, study)
    public = load_public(config.run, public_root(config, data_root))
    done = drive(config, public, wait_s=wait_s, patience_s=patience_s)
    if as_json:
        typer.echo(json.dumps(asdict(done) | {"ready": done.ready}))
    else:
        typer.echo("\n".join(done.lines()))
    if not done.ready:
        raise typer.Exit(QuorumNotReached.exit_status)
