"""Asks the records near inputs of the pool: all those within a public radius."""

from typing import Any

import numpy as np

from collegium.coordinator.kind import RunFacts, RunKind
from collegium.coordinator.selection.pool_geometry import fit_features, public_radii_squared
from collegium.coordinator.settings.kinds import register
from collegium.models.features import extract
from collegium.protocol.kinds.near_records import CastNeighbours
from collegium.protocol.question import PoolRange, QuestionTerms


class OfRecords(RunKind):
    """Asks records that are compared with inputs by public features; derive a class for each way to choose them."""

    section = "neighbours"

    def __init__(self, facts: RunFacts) -> None:
        super().__init__(facts)
        config, settings = facts.config, facts.config.neighbours
        assert settings is not None  # the configuration's own checks
        self.settings_here = settings
        name, network = settings.features, settings.network_bytes()
        if name == "pretrained":  # by the network that learned from the pool without labels
            name, network = "network", facts.pretrained()
        self.features = fit_features(name, settings.dimensions, facts.pool, config.task.inputs, network)
        """Those by which records near a query are found. They are made from the pool alone."""
        self.values = extract(self.features, facts.pool, config.task.inputs)
        """These features of the pool, ``[inputs, …]``."""


@register
class NearRecords(OfRecords):
    """Asks `CastNeighbours`."""

    question = CastNeighbours

    @classmethod
    def check(cls, config: Any) -> None:
        fine = config.mechanism.parameters.get("levels", 1) > 1
        if fine != (config.neighbours.kernel != "flat"):
            raise ValueError(
                "the kernel 'flat' has one level; another kernel needs mechanism.parameters.levels above 1"
            )

    def ask(self, terms: QuestionTerms, inputs: PoolRange) -> CastNeighbours:
        config, settings = self.facts.config, self.settings_here
        positions = np.asarray(inputs.indices, dtype=np.int64)
        radii = tuple(public_radii_squared(self.values, positions, settings.share).tolist())
        per_party, classes = config.budget.unit == "party", len(config.task.classes)
        of_study = self.facts.of_study
        return CastNeighbours(terms, of_study, self.features, inputs, classes, radii, settings.kernel, per_party)
