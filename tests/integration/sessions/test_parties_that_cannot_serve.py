"""A party that cannot serve says why by one of three constant texts, which no record of it has a part in."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sessions import Hub, Kits, PartyThread

from collegium.data.loading.loading import load
from collegium.data.loading.sources import DataSource
from collegium.data.task import Task
from collegium.errors import CannotServe, CollegiumError, ColumnMissing, ConfigurationError, DataError, StorageError
from collegium.parties.config import OwnRecords, PartyConfig
from collegium.parties.opening import records_of
from collegium.parties.session import Answers, PartySession
from collegium.protocol.channels import Backoff

AGE = {"kind": "number", "name": "age", "low": 0, "high": 100}
TABLE = Task.model_validate({"classes": ["no", "yes"], "inputs": {"kind": "table", "columns": [AGE]}})


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ColumnMissing("SECRET"), "data-column"),
        (ConfigurationError("SECRET"), "configuration"),
        (DataError("SECRET: no class 'perhaps'"), "records"),
        (StorageError("SECRET"), "records"),
    ],
)
def test_the_operator_reads_a_constant_text_and_the_institution_its_own_error(
    error: CollegiumError, told: str, hub: Hub, kits: Kits
) -> None:
    def cannot(task: Task) -> Answers:
        raise error

    session = PartySession(cannot, lambda: kits.parties["ash"], hub.address, backoff=Backoff(0.01, 0.05))
    assert PartyThread(session).ended() is error
    seen = hub.log.wait_for("refused")
    assert (seen.party, seen.detail, seen.code) == ("ash", CannotServe.reasons[told], "cannot-serve")
    assert hub.log.wait_for("disconnected").detail == CannotServe.reasons[told]
    assert not any("SECRET" in event.detail for event in hub.log.events)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_what_is_told_follows_from_the_header_alone(tmp_path: Path, ending: str) -> None:
    """Files with one header are told alike, whatever their rows hold."""
    import pandas as pd

    def error_of(frame: pd.DataFrame) -> type[CollegiumError] | None:
        path = tmp_path / f"records.{ending}"
        frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
        source = OwnRecords(source=str(path), label="ill")
        config = PartyConfig(coordinator="a:1", credentials=tmp_path, data=source, folder=tmp_path)
        try:
            records_of(config, TABLE)
        except DataError as error:
            return type(error)
        return None

    rows: list[list[object]] = [["1", "no"], ["old", "no"], ["1", "perhaps"], ["1", ""]]
    for header, expected in (("age ill", DataError), ("iq ill", ColumnMissing), ("age sick", ColumnMissing)):
        found = {error_of(pd.DataFrame([row], columns=header.split())) for row in rows[1:]}
        assert found == {expected}, header
    assert error_of(pd.DataFrame([rows[0]], columns=["age", "ill"])) is None


def test_the_test_above_would_see_a_text_that_rows_decide(tmp_path: Path) -> None:
    """Loading alone names what it meets first: with an unreadable number that is not the missing label column."""
    kinds = set()
    for value in ("1", "old"):
        (tmp_path / "records.csv").write_text(f"age,sick\n{value},no\n")
        with pytest.raises(DataError) as raised:
            load(DataSource(source=str(tmp_path / "records.csv"), label="ill"), TABLE, data_root=None)
        kinds.add(type(raised.value))
    assert kinds == {DataError, ColumnMissing}
