"""Where a site, or the server, keeps what is its own: never where a job says, which could bring a policy of its own."""

import os
from pathlib import Path

VARIABLE = "COLLEGIUM_NVFLARE"
"""The environment variable by which whoever runs a site names another folder; ``{site}`` in it is the site's name."""
USUAL = Path("local") / "collegium"
"""The folder below the root of a workspace."""
SERVER = "server"
"""The name of the server in that variable."""


def own_folder(root: str, name: str) -> Path:
    """The folder of the site ``name``, whose workspace is ``root``."""
    return Path(os.environ.get(VARIABLE, str(Path(root) / USUAL)).replace("{site}", name))
