"""`collegium completion` and `collegium schema`: what shells and editors ask of the command."""

from typing import Annotated, Literal

import typer
from click.shell_completion import get_completion_class

from collegium.settings import schema_of

app = typer.Typer(add_completion=False)


@app.command(epilog="Examples: collegium completion bash >> ~/.bashrc;  collegium completion fish | source")
def completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish"], typer.Argument(help="Whose script is printed.", show_default=False)
    ],
) -> None:
    """Print the script that lets a shell complete commands, options and files; the shell's start file is its place."""
    from collegium.cli import app as whole

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(typer.main.get_command(whole), {}, "collegium", "_COLLEGIUM_COMPLETE").source()
    typer.echo(script.replace(f"{shell}_complete", f"complete_{shell}"))  # click writes it, and Typer reads it


@app.command(epilog="Example: collegium schema consortium")
def schema(
    kind: Annotated[str, typer.Argument(help="consortium, study, party, policy or simulation.", show_default=False)],
) -> None:
    """Print the JSON schema of a TOML file, with which an editor explains its settings and marks mistakes.

    The files that Collegium writes name their schema in their first line, and it lies beside them. Even Better TOML for
    VS Code and other editors with Taplo read that line.
    """
    typer.echo(schema_of(kind), nl=False)
