"""The version of Collegium, which parties and coordinator tell each other."""

__version__ = "0.2.0"
SOFTWARE = f"collegium {__version__}"
