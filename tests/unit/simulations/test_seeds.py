"""A seed fixes the noise, whoever draws it; and nobody who serves real records takes noise from one unasked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.paths import POOL, SEED, case, config_of, write_files
from support.typist import typed

import collegium as cg
from collegium.coordinator.run.run_record import NOT_PRIVATE, RunRecord
from collegium.coordinator.settings.consortium import ConsortiumConfig
from collegium.errors import ConfigurationError
from collegium.privacy.ledger.ledger import Ledger
from collegium.protocol.certificates import Authority
from collegium.protocol.identities import issue_kit
from collegium.settings import validate_config
from collegium.simulations.cohort import prepare_run
from collegium.simulations.launcher import write_party_config
from collegium_accounting.noise.distributed import NoiseShare
from collegium_accounting.noise.sources import source_of

COUNTED: dict[str, Any] = {"evaluation": {"share": 0.2}, "pool_check": {"share": 0.2}}


def done(mode: str, folder: Path, seed: int) -> RunRecord:
    policy = cg.PolicyConfig(sum_modes=(mode,), queries=1000, epsilon=8.0)
    one = case("table", mode, folder, policy, **COUNTED, seed=seed)
    record = one.run()
    with Ledger.read(folder / "run" / "ledger.sqlite") as ledger:
        assert ledger.terms().seeded and not record.private and NOT_PRIVATE in record.cautions
    return record


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["masked+noised", "clear"])
def test_labels_and_counts_of_records_are_the_same_with_the_same_seed_alone(mode: str, tmp_path: Path) -> None:
    first, again, other = (done(mode, tmp_path / str(number), seed) for number, seed in enumerate((SEED, SEED, 6)))
    assert first.labels == again.labels and first.labels.answered == POOL
    for part in ("evaluation", "pool_check"):
        assert getattr(first, part) == getattr(again, part) != getattr(other, part), part
    assert first.evaluation.measures is not None and first.pool_check.found is not None


def test_a_share_follows_from_the_seed_the_party_and_the_question() -> None:
    share = NoiseShare(40.0, 3)

    def drawn(*named: Any) -> list[int]:
        return share.draw(20, source_of(*named)).tolist()

    assert drawn(1, "ash", "question") == drawn(1, "ash", "question")
    others = [drawn(2, "ash", "question"), drawn(1, "oak", "question"), drawn(1, "ash", "another")]
    assert drawn(1, "ash", "question") not in others
    assert drawn(None, "ash", "question") != drawn(None, "ash", "question")


def test_a_real_party_takes_noise_from_a_seed_only_where_its_policy_allows_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = config_of("table", write_files("table", tmp_path), seed=SEED)
    run = prepare_run(config, tmp_path / "run", data_root=None)
    member = run.cohort[0]
    issue_kit(Authority.create("local"), member.credentials, member.name, "party")
    file, policy = write_party_config(run, member, 1), member.folder / "policy.toml"
    assert f"noise_seed = {SEED}" in file.read_text() and "seeded_noise = true" in policy.read_text()
    policy.write_text(policy.read_text().replace("seeded_noise = true\n", ""))
    status, _, err = typed(capsys, "party", "serve", file)
    assert status == 2 and "seeded_noise = true" in err


def test_in_a_run_without_a_seed_no_file_of_a_party_names_one(tmp_path: Path) -> None:
    config = config_of("table", write_files("table", tmp_path))
    run = prepare_run(config, tmp_path / "run", data_root=None)
    text = write_party_config(run, run.cohort[0], 1).read_text() + (run.cohort[0].folder / "policy.toml").read_text()
    assert "noise_seed =" not in text and "seeded_noise" not in text


@pytest.mark.parametrize("sections", [{}, {"votes": {"mode": "masked"}, **COUNTED, "mechanism": {"name": "gnmax"}}])
def test_a_consortium_whose_institutions_draw_the_noise_takes_no_seed(sections: dict[str, Any], tmp_path: Path) -> None:
    asked = config_of("table", write_files("table", tmp_path)).model_dump(include={"name", "task", "pool", "budget"})
    members = {"address": "localhost:1", "enrolment": "localhost:2", "parties": ["ash"], "folder": "c"}
    validate_config(asked | sections | {"consortium": members}, ConsortiumConfig, "test")
    with pytest.raises(ConfigurationError, match="no seed of the coordinator"):
        validate_config(asked | sections | {"consortium": members, "seed": 1}, ConsortiumConfig, "test")
