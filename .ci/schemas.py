"""Write the JSON schemas of the TOML files into the package, for `collegium schema` and for editors: `make schemas`."""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from collegium.settings import Frozen

MODELS = {
    "consortium": "collegium.coordinator.settings.consortium:ConsortiumConfig",
    "study": "collegium.coordinator.settings.consortium:ConsortiumConfig",
    "party": "collegium.parties.cli:PartyConfig",
    "policy": "collegium.parties.policy:PolicyConfig",
    "simulation": "collegium.simulations.config:SimulationConfig",
}


class WithoutTitles(GenerateJsonSchema):
    """Leaves out the titles, which repeat the names of the settings."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def schema(name: str) -> dict[str, Any]:
    """The schema of a kind of file, with the docstrings of its settings as their descriptions."""
    module, _, model = MODELS[name].partition(":")
    made: dict[str, Any] = getattr(import_module(module), model).model_json_schema(schema_generator=WithoutTitles)
    if name == "study":  # any sections of a consortium's file, but for what all studies share
        made |= {"required": [], "description": "The sections in which a study differs from the consortium's file."}
        for shared in ("name", "consortium"):
            made["properties"].pop(shared)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made, "title": f"{name}.toml"}


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "src" / "collegium" / "schemas"
    folder.mkdir(exist_ok=True)
    Frozen.model_config["use_attribute_docstrings"] = True  # slow: only here, before the classes of settings are made
    for name in MODELS:
        text = json.dumps(schema(name), indent=1, ensure_ascii=False)
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
