"""The Flower app that `flwr run .` starts: virtual parties answer through a ClientApp, the coordinator is a ServerApp.

Both read the folder of a prepared run from the configuration of Flower's run.
"""

from pathlib import Path

from flwr.app import Context

from collegium.errors import ConfigurationError
from collegium.simulations.flower_parties import apps_for
from collegium.simulations.simulate import drive_prepared


def _folder(context: Context) -> Path:
    folder = Path(str(context.run_config["folder"]))
    if not folder.is_absolute():
        raise ConfigurationError(
            "the app needs the absolute folder of a prepared run: "
            "collegium simulate CONFIG --prepare-only prints the whole command"
        )
    return folder


server_app, client_app = apps_for(_folder, lambda grid, context: drive_prepared(grid, _folder(context)))

__all__ = ["client_app", "server_app"]  # `flwr run` finds the apps by reading this file, and not in the line above
