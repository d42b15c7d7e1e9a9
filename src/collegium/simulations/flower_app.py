"""The Flower app that `flwr run .` starts: virtual parties answer through a ClientApp, the coordinator is a ServerApp.

Both read the folder of a prepared run from the configuration of Flower's run.
"""

from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from collegium.errors import ConfigurationError
from collegium.simulations.flower_parties import answer
from collegium.simulations.simulate import drive_prepared

client_app = ClientApp()


@client_app.query("collegium")
def _answer_in_app(message: Message, context: Context) -> Message:
    return answer(message, context, _folder(context))


server_app = ServerApp()


@server_app.main()
def _main_in_app(grid: Grid, context: Context) -> None:
    drive_prepared(grid, _folder(context))


def _folder(context: Context) -> Path:
    folder = Path(str(context.run_config["folder"]))
    if not folder.is_absolute():
        raise ConfigurationError(
            "the app needs the absolute folder of a prepared run: "
            "collegium simulate CONFIG --prepare-only prints the whole command"
        )
    return folder
