"""Questions about the nearest records of a sample, and their mechanisms, which a policy agrees to by name."""

from typing import Any

from collegium_reproduction.nearest.knn import PrivateKNN
from collegium_reproduction.nearest.multilabel_knn import MultiLabelKNN
from collegium_reproduction.nearest.question import CountNearest

from collegium.protocol.question import own_kinds
from collegium_accounting.mechanisms import default_names

SAMPLED = (PrivateKNN.name, MultiLabelKNN.name)
AGREED: dict[str, Any] = {
    "questions": (*own_kinds(), CountNearest.kind),
    "mechanisms": (*default_names(), *SAMPLED),
}
"""Those of the package and these, for a `PolicyConfig`."""
