"""Arguments and options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

from collegium.logs import LogFormat

ConfigFile = Annotated[Path, typer.Argument(help="The consortium's TOML file.", show_default=False)]
StudyName = Annotated[
    str | None, typer.Option("--study", metavar="NAME", help="A study of the consortium; see collegium study --help.")
]
PublicRoot = Annotated[
    Path | None, typer.Option("--data-root", help="Folder of the public data files; by default the TOML file's.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Device = Annotated[str, typer.Option(help="The device that computes: auto, cpu or cuda.")]
LogLines = Annotated[LogFormat, typer.Option(help="Lines for people, or JSON lines.")]
WaitSeconds = Annotated[
    float,
    typer.Option("--wait", min=0, metavar="SECONDS", help="How long to wait for others once a quorum is here."),
]
