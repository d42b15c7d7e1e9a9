"""How a run asks, and what is published."""

from typing import Any

from collegium.coordinator.kinds.record_counts import OtherCounts
from collegium.coordinator.run.run_record import Table
from collegium.coordinator.settings.kinds import register_counts
from collegium.coordinator.settings.run_config import CountsConfig
from collegium.protocol.question import QuestionTerms
from collegium_accounting.renyi import FloatArray
from table_one.question import TableOne, values_of


class TableOneConfig(CountsConfig):
    columns: tuple[str, ...]
    bins: int = 5


@register_counts
class TableOneCounts(OtherCounts):
    question, settings, cells_add_up = TableOne, TableOneConfig, True

    @classmethod
    def _chosen(cls, config: Any, settings: Any) -> tuple[tuple[int, ...], list[list[str]]]:
        columns = tuple(cls.columns_at(config, settings.columns))
        return columns, values_of(config.task, columns, settings.bins)

    @classmethod
    def parts_and_cells(cls, config: Any, settings: Any) -> tuple[int, int]:
        return len(settings.columns), len(config.task.classes) * sum(map(len, cls._chosen(config, settings)[1]))

    def ask(self, terms: QuestionTerms, ledger_id: str, per_party: bool) -> TableOne:
        columns, values = self._chosen(self._config, self._settings)
        sized = tuple(map(len, values)), self._settings.bins, len(self._config.task.classes)
        return TableOne(terms, ledger_id, per_party, columns, *sized)

    def table(self, counts: FloatArray, error: float) -> Table:
        values, classes = self._chosen(self._config, self._settings)[1], self._config.task.classes
        named = [(name, value) for name, own in zip(self._settings.columns, values, strict=True) for value in own]
        by_value = counts.reshape(len(named), len(classes)).round(1).tolist()
        heads = ("column", "value", *(f"{name} (± {error:.1f})" for name in classes))
        return Table(columns=heads, rows=tuple((*one, *row) for one, row in zip(named, by_value, strict=True)))
