"""`collegium completion` and `collegium schema`: what shells and editors ask of the command."""

import json
from importlib import import_module
from typing import Annotated, Any, Literal

import typer
from click.shell_completion import get_completion_class
from pydantic.json_schema import GenerateJsonSchema

from collegium.errors import ConfigurationError
from collegium.settings import Frozen, nearest

SETTINGS = {
    "consortium": "collegium.coordinator.settings.consortium:ConsortiumConfig",
    "study": "collegium.coordinator.settings.consortium:ConsortiumConfig",
    "party": "collegium.parties.config:PartyConfig",
    "policy": "collegium.parties.policy:PolicyConfig",
    "simulation": "collegium.simulations.config:SimulationConfig",
}
"""The class of settings of each kind of TOML file."""

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

    Save it as party.schema.json, say, and write `#:schema party.schema.json` into the first line of party.toml: Even
    Better TOML for VS Code and other editors with Taplo read that line.
    """
    Frozen.model_config["use_attribute_docstrings"] = True  # slow, so only here, before those classes are made
    typer.echo(json.dumps(schema_of(kind), indent=1, ensure_ascii=False))


def schema_of(kind: str) -> dict[str, Any]:
    """The JSON schema of a kind of TOML file, such as ``party``; ConfigurationError for an unknown kind."""
    if kind not in SETTINGS:
        raise ConfigurationError(f"no TOML file is called {kind[:64]!r}{nearest(kind, sorted(SETTINGS))}")
    module, _, name = SETTINGS[kind].partition(":")
    made: dict[str, Any] = getattr(import_module(module), name).model_json_schema(schema_generator=_WithoutTitles)
    if kind == "study":  # any sections of a consortium's file, but for what all studies share
        made |= {"required": [], "description": "The sections in which a study differs from the consortium's file."}
        for shared in ("name", "consortium"):
            made["properties"].pop(shared)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made, "title": f"{kind}.toml"}


class _WithoutTitles(GenerateJsonSchema):
    """Leaves out the titles, which repeat the names of the settings."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False
