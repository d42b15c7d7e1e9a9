"""Options of the command line for the parameters of mechanisms, made from the mechanisms' own fields.

Every registered mechanism, one from another installed package included, gets an option for each of its
parameters: ``--sampling-rate`` for the field ``sampling_rate``. Where several have a parameter of one name they
share the option. The options are made when a command is parsed or its help is printed, not when it is imported.
"""

from itertools import pairwise
from typing import Any

import click
import typer
from typer.core import TyperCommand, TyperOption

from collegium_accounting.mechanisms import known_names, mechanism_named
from collegium_accounting.mechanisms.parameters import Field, fields_of

_PANEL = "Parameters of the mechanism"
_GIVEN = "collegium.mechanism-parameters"


class MechanismCommand(TyperCommand):
    """A command that takes the parameters of all mechanisms as options.

    A parameter whose name the command itself uses for an option has no option of its own. ``PROGRAM`` in its examples
    is the program that the user typed.
    """

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        own = super().get_params(ctx)
        taken = {name for parameter in own for name in (parameter.name, *parameter.opts)}
        made = [option for option in _options() if not taken & {option.name, *option.opts}]
        # The option for help stays the last one of its own panel.
        return [*own[:-1], *made, own[-1]]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption:
            # It may be one of a mechanism whose package is not installed, which says more.
            for word, name in pairwise(given):
                if word in ("-m", "--mechanism") and name != "all":
                    mechanism_named(name)
            raise

    def invoke(self, ctx: click.Context) -> Any:
        names = {option.name for option in _options()} - {parameter.name for parameter in self.params}
        given = {name: ctx.params.pop(name) for name in names & set(ctx.params)}
        ctx.meta[_GIVEN] = {name: value for name, value in given.items() if value is not None}
        return super().invoke(ctx)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.epilog = (self.epilog or "").replace("PROGRAM", ctx.find_root().info_name or "collegium-accounting")
        super().format_help(ctx, formatter)


def mechanism_options(context: typer.Context) -> dict[str, Any]:
    """The mechanism's parameters that were given on the command line, by name."""
    return dict(context.meta[_GIVEN])


def _options() -> list[TyperOption]:
    fields: dict[str, list[tuple[str, Field]]] = {}
    for name in known_names():
        for field in fields_of(mechanism_named(name)).values():
            if field.kind in (int, float, str):
                fields.setdefault(field.name, []).append((name, field))
    return [
        TyperOption(
            param_decls=[f"--{name.replace('_', '-')}", name],
            # A whole number is one for every mechanism that has the parameter, or it may be any number.
            type=held[0][1].kind if len({field.kind for _, field in held}) == 1 else float,
            default=None,
            help=_help(held),
            rich_help_panel=_PANEL,
        )
        for name, held in fields.items()
    ]


def _help(held: list[tuple[str, Field]]) -> str:
    described = next((field.described for _, field in held if field.described.description), held[0][1].described)
    unit = described.unit if not described.unit or described.unit.startswith("per ") else f"in {described.unit}"
    text = described.description + (f", {unit}" if unit else "")
    names = [name for name, _ in held]
    shown = ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
    return (
        f"{text[:1].upper() if text[0].isascii() else text[:1]}{text[1:]} ({shown})."
        if text
        else f"A parameter of {shown}."
    )
