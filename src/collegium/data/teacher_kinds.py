"""The kinds of teachers that a configuration may name. Nothing of a teacher is imported here."""

import re
from functools import cache

from collegium.data.task import OWN_CHOICE
from collegium.errors import ConfigurationError
from collegium.extras import installed
from collegium.settings import nearest

BUILT_IN = {
    "constant": "collegium.parties.teachers.array_teachers:ConstantTeacher",
    "linear": "collegium.parties.teachers.networks:LinearTeacher",
    "mlp": "collegium.parties.teachers.networks:MlpTeacher",
    "random-forest": "collegium.parties.teachers.array_teachers:RandomForestTeacher",
    "small-cnn": "collegium.parties.teachers.networks:SmallCnnTeacher",
}
OF_IMAGES = ("small-cnn",)
"""Built-in kinds that learn from images alone."""
ENTRY_POINT_GROUP = "collegium.teachers"
"""Where an installed package names teachers of its own: ``name = "package.module:Class"``."""

_IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


@cache
def installed_kinds() -> dict[str, str]:
    """Import paths of the teachers that installed packages name; nothing is imported, no built-in name is replaced."""
    return {point.name: point.value for point in installed(ENTRY_POINT_GROUP) if point.name not in BUILT_IN}


def import_path(kind: str) -> str:
    """The ``package.module:Class`` of a kind: a built-in name, the name of an installed package's, or such a path.

    Raises
    ------
    ConfigurationError
        If it is none of these. The message names the most similar kind.
    """
    known = BUILT_IN | installed_kinds()
    if kind not in known and not _IMPORT_PATH.fullmatch(kind):
        names = sorted([*known, OWN_CHOICE])
        raise ConfigurationError(
            f"unknown teacher {kind[:64]!r}{nearest(kind, names)}; write package.module:Class for one of your own, and "
            "install collegium-reproduction for those of the papers"
        )
    return known.get(kind, kind)
