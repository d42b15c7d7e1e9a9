"""Counts how well a pool covers the party's own records."""

from collegium.models.features import dimensions
from collegium.parties.kind import Asked, PartyKind, register
from collegium.protocol.kinds.coverage import CountCoverage
from collegium_accounting.mechanisms.record_counts import counts_of, weights_of
from collegium_accounting.units import IntArray


@register
class Coverage(PartyKind[CountCoverage]):
    """Answers `CountCoverage`."""

    question = CountCoverage

    def validate(self, question: CountCoverage) -> None:
        dimensions(question.coverage.features, self.own.task.inputs)

    def compute(self, question: CountCoverage, asked: Asked) -> IntArray:
        examples, pool = self.own.examples, self.own.pools.open(question.pool_sha256)
        cells = question.coverage.cells_of(examples.x, pool, self.own.task.inputs, self.own.device)
        weights = weights_of(examples.groups, len(cells), per_party=question.per_party)
        return counts_of(cells[:, None], weights, question.length)[None]
