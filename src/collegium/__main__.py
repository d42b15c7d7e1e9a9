"""`python -m collegium` is the command `collegium`."""

from collegium.cli import main

main()
