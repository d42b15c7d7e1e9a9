"""`collegium provision` and `collegium coordinator status` as an operator types them."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from support.files import contents_of
from support.typist import typed

from collegium.coordinator.cli.study_cli import left_beside
from collegium.coordinator.run.run_record import RUN_FORMAT
from collegium.coordinator.settings.consortium import read_consortium
from collegium.errors import ConfigurationError
from collegium.parties.policy import PolicyConfig
from collegium_accounting.game.laws import VectorLaw, block_epsilon

CONFIG = """\
name = "trial"
consortium = { address = "localhost:1", enrolment = "localhost:2", parties = ["ash", "birch", "cedar"], folder = "c" }
task = { classes = ["no", "yes"], inputs = { kind = "image", height = 2, width = 2 } }
pool = { source = "pool.npz" }
budget = { epsilon = 3.0 }
mechanism = { name = "gnmax", parameters = { sigma = 4.0 } }
queries = { count = 12 }
teachers = { kind = "random-forest", per_party = 10 }
student = { method = "random-forest" }
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("COLLEGIUM_DATA", raising=False)  # it would stand for the folder of the file
    path = tmp_path / "consortium.toml"
    path.write_text(CONFIG)
    np.savez(tmp_path / "pool.npz", x=np.arange(80, dtype=np.uint8).reshape(20, 2, 2))
    np.savez(tmp_path / "labelled.npz", x=np.zeros((4, 2, 2), dtype=np.uint8), y=["no"] * 4)
    return path


def provision(capsys: pytest.CaptureFixture[str], config: Path, *options: str) -> dict[str, Any]:
    status, out, err = typed(capsys, "provision", config, "--json", *options)
    assert status == 0, err
    return json.loads(out)  # type: ignore[no-any-return]


def test_it_prints_one_line_for_each_party_with_code_and_fingerprint(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = provision(capsys, config)
    assert sorted(made["commands"]) == ["ash", "birch", "cedar"]
    words = made["commands"]["ash"].split()
    assert words[words.index("--fingerprint") + 1] == made["fingerprint"]
    assert words[words.index("--coordinator") + 1] == "localhost:2"
    assert len(set(made["commands"].values())) == 3


def test_keys_are_the_operators_alone(config: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    provision(capsys, config)
    for folder in (tmp_path / "c", tmp_path / "c" / "authority", tmp_path / "c" / "coordinator"):
        assert folder.stat().st_mode & 0o777 == 0o700, folder
    secrets = [*(tmp_path / "c").rglob("*key.pem"), tmp_path / "c" / "members.json"]
    assert len(secrets) == 4
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in secrets)


def test_no_code_is_on_the_disk(config: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = provision(capsys, config)["commands"]["ash"].split()
    code = words[words.index("--code") + 1]
    for content in contents_of(tmp_path).values():
        assert code.encode() not in content and code.replace("-", "").encode() not in content


def test_twice_is_once(config: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first = provision(capsys, config)
    before = contents_of(tmp_path / "c")
    second = provision(capsys, config)
    assert contents_of(tmp_path / "c") == before
    assert second["commands"] == {} and second["fingerprint"] == first["fingerprint"]


def test_another_host_gives_the_coordinator_another_certificate_from_the_same_authority(
    config: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    first = provision(capsys, config)
    certificate = tmp_path / "c" / "coordinator" / "certificate.pem"
    before = certificate.read_bytes()
    config.write_text(CONFIG.replace("localhost", "coordinator.example.org"))
    assert provision(capsys, config)["fingerprint"] == first["fingerprint"]
    assert certificate.read_bytes() != before


def test_codes_are_renewed_and_parties_added_and_revoked(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = provision(capsys, config)
    renewed = provision(capsys, config, "--renew-code", "ash")
    assert list(renewed["commands"]) == ["ash"] and renewed["commands"]["ash"] != first["commands"]["ash"]
    added = provision(capsys, config, "--add", "oak")
    assert list(added["commands"]) == ["oak"] and added["expected"] == ["ash", "birch", "cedar", "oak"]
    assert provision(capsys, config, "--revoke", "birch")["expected"] == ["ash", "cedar", "oak"]
    assert list(provision(capsys, config, "--add", "birch")["commands"]) == ["birch"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--revoke", "oak"), "nobody is called oak"),
        (("--renew-code", "oak"), "use --add"),
        (("--add", "ash"), "expected or enrolled already"),
        (("--add", "No Name"), "name"),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(
    options: tuple[str, str], words: str, config: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    provision(capsys, config)
    before = contents_of(tmp_path / "c")
    status, out, err = typed(capsys, "provision", config, *options)
    assert status != 0 and out == "" and words in err and len(err.splitlines()) == 1
    assert contents_of(tmp_path / "c") == before


def test_a_folder_of_another_consortium_is_left_alone(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    provision(capsys, config)
    config.write_text(CONFIG.replace('"trial"', '"other"'))
    status, _, err = typed(capsys, "provision", config)
    assert status == 2 and "is the folder of 'trial'" in err


def test_a_check_makes_nothing_and_forecasts_the_labels(
    config: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = contents_of(tmp_path)
    status, out, _ = typed(capsys, "provision", config, "--check")
    assert status == 0 and contents_of(tmp_path) == before
    assert "pool         20 inputs; holdout: none" in out and "pays for 5 of 12 queries" in out
    assert "warning      3 parties" in out
    assert "secure sum   among 3 parties: shares with all others" in out
    status, out, _ = typed(capsys, "provision", config, "--check", "--json")
    found = json.loads(out)
    assert found["votes"] == 30 and found["affordable"] == 5 and found["graph"]["quorum"] == 3
    # With two classes the label is wrong where the difference of two Gaussians of sigma 4 passes the lead.
    for forecast in found["forecasts"]:
        lead = 2 * round(forecast["share"] * 30) - 30
        assert forecast["right"] == pytest.approx(NormalDist(0, 4 * 2**0.5).cdf(lead), abs=0.02)


BY_SUMS = re.sub(r"(mechanism|queries|teachers|student) = .*\n", "", CONFIG).replace(
    '"image", height = 2, width = 2', '"vector", size = 4'
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "unit", "hidden"),
    [
        ("8.0", "record", False),
        ("0.01", "record", True),
        ("0.5", "party", True),
    ],
)
def test_a_check_tells_how_many_records_class_sums_need(
    epsilon: str, unit: str, hidden: bool, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(config.with_name("pool.npz"), x=np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32))
    config.write_text(BY_SUMS.replace("epsilon = 3.0", f'epsilon = {epsilon}, unit = "{unit}"'))
    status, out, _ = typed(capsys, "provision", config, "--check")
    told = r"forecast     up to [\d,]+ (records|institutions).* noise decides; from [\d,]+ on it costs little"
    assert status == 0 and re.search(told, out)
    assert ("the noise hides classes" in out) == hidden and "evaluation   " not in out
    config.write_text(config.read_text() + "[evaluation]\nshare = 0.1\n")
    measured = r"evaluation   states .* ± 5 points from ([\d,]+) (?:records|institutions).* on"
    assert re.search(measured, typed(capsys, "provision", config, "--check")[1])
    config.write_text(config.read_text().replace('"cedar"', '"cedar", "oak", "yew"'))
    both = measured + r", where all are there\n +where one stays away, from ([\d,]+) on at worst\n"
    found = re.search(both, typed(capsys, "provision", config, "--check")[1])
    assert found is not None
    # The noise has 1.12 and 1.29 times the standard deviation that is charged; that of drawing records is the same.
    all_there, one_away = (int(number.replace(",", "")) for number in found.groups())
    assert all_there < one_away <= (4 / 3) * all_there


def test_a_check_says_what_epsilon_becomes_with_more_colluding_parties(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(config.with_name("pool.npz"), x=np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32))
    config.write_text(BY_SUMS)
    out = typed(capsys, "provision", config, "--check")[1]
    assert re.search(
        r"colluders    ε = [\d.]+ of the labels alone, .* 1 of .*\n +with more, at worst, 2: ε = [\d.]+, noise of 1",
        out,
    )


def test_a_check_of_a_study_names_the_policy_that_parties_of_an_earlier_study_need(
    config: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert "policy" not in typed(capsys, "provision", config, "--check")[1]
    typed(capsys, "study", "new", config, "second")
    (tmp_path / "c" / "studies" / "second" / "study.toml").write_text(
        'mechanism = { name = "lnmax", parameters = { gamma = 0.5 } }\nqueries = { count = 3 }\nvotes.mode = "masked"\n'
    )
    lines = typed(capsys, "provision", config, "--check", "--study", "second")[1].splitlines()
    told = lines[next(number for number, line in enumerate(lines) if line.startswith("policy")) + 1 :]
    agreed = PolicyConfig.model_validate(tomllib.loads("\n".join(line for line in told if line.startswith("    "))))
    assert (agreed.mechanisms, agreed.sum_modes, agreed.minimum_noise_votes) == (("lnmax",), ("masked",), 2.0)
    assert agreed.queries == 6 and agreed.pools is not None
    (limit,) = (line for line in told if line.strip().startswith("record_epsilon"))
    assert limit.endswith("was answered or spent; 3 in all where that was this consortium's alone"), "no sum beyond it"


def test_a_finished_study_of_another_version_stands_in_the_way_of_none(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(capsys, "study", "new", config, "second")
    run = read_consortium(config).place.run
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({"format": RUN_FORMAT - 1}))
    assert typed(capsys, "provision", config, "--check", "--study", "second")[0] == 0


def test_a_trial_is_a_small_study_of_one_sum_and_keeps_the_consortiums_cap_and_unit(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(BY_SUMS.replace("epsilon = 3.0", "epsilon = 3.0, records_per_party = 77, delta = 1e-6"))
    given = read_consortium(config).budget
    for name, options, share in (("trial", ("--trial",), 0.2), ("main", (), 1.0)):
        assert typed(capsys, "study", "new", config, name, *options)[0] == 0
        study = read_consortium(config, name)
        expected = given.model_copy(update={"study": pytest.approx(share * given.epsilon)})
        assert study.budget == expected and study.budget.records_per_party == 77
        assert (study.class_sums == 1) == bool(options)
    config.write_text(BY_SUMS.replace("epsilon = 3.0", 'epsilon = 3.0, unit = "party"'))
    status, _, err = typed(capsys, "study", "new", config, "of-parties", "--trial")
    assert status == 2 and "leave it out" in err


def test_a_trial_of_votes_is_refused(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = typed(capsys, "study", "new", config, "trial", "--trial")
    assert status == 2 and "this consortium asks for none" in err


@pytest.mark.slow
@pytest.mark.parametrize("spent", [0.9084, 0.5, 0.999])
def test_a_study_is_offered_what_fits_beside_what_is_spent_and_not_the_difference_alone(spent: float) -> None:
    """With ε = 0.91 of 1 spent, sums of 0.37 fit: the difference, 0.09, asked for four times as many records."""
    left = left_beside(spent, 1.0, 1e-5)
    assert left > 1.0 - spent and left_beside(1.0, 1.0, 1e-5) == left_beside(0.0, 1.0, 1e-5) == 0.0
    laws = [VectorLaw(one) for one in (_mu(spent), _mu(left))]
    assert 0.99 < block_epsilon(dict.fromkeys(laws, 1), 1e-5) < 1.01, "together they are the whole budget"


def _mu(epsilon: float) -> float:
    """The size of one release that costs ``epsilon`` at δ = 1e-5, by the accountant."""
    low, high = 0.0, 10.0
    for _ in range(40):
        middle = (low + high) / 2.0
        low, high = (low, middle) if block_epsilon({VectorLaw(middle): 1}, 1e-5) > epsilon else (middle, high)
    return low


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ('"random-forest", per', '"random-forrest", per', "line 8: teachers.kind: .*did you mean random-forest"),
        ("sigma = 4.0", "sigmaa = 4.0", "line 6: mechanism.parameters: .*did you mean sigma"),
        ("{ sigma = 4.0 }", "{}", "gnmax needs 'sigma'"),
        ("sigma = 4.0", "sigma = 0.01", "one more query of gnmax does not fit"),
        ("count = 12", "count = 50", "queries.count is 50, but the pool has 20 inputs"),
        ('method = "random-forest"', 'method = "forest"', "unknown student method 'forest'"),
        ('"pool.npz"', '"poll.npz"', "there is no .*poll.npz"),
        ("height = 2", "height = 3", "images of size"),
        ('["ash", "birch", "cedar"]', '["ash"]', "consortium.parties: a masked sum needs 3 parties at least"),
        ("holdout = {", 'holdout = { source = "pool.npz" }\n# {', "the holdout has no labels"),
    ],
)
def test_what_cannot_run_is_told_before_anybody_enrols(
    right: str, wrong: str, words: str, config: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = CONFIG + 'holdout = { source = "labelled.npz" }\n'
    assert right in text
    config.write_text(text.replace(right, wrong))
    for options in ((), ("--check",)):
        status, out, err = typed(capsys, "provision", config, *options)
        assert status != 0 and not out and re.search(words, err) and len(err.splitlines()) == 1, err
    assert not (tmp_path / "c").exists(), "no key and no code was made"


def test_a_teacher_of_images_is_refused_where_inputs_are_none(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(config.with_name("pool.npz"), x=np.zeros((20, 4), dtype=np.float32))
    text = CONFIG.replace('"image", height = 2, width = 2', '"vector", size = 4')
    config.write_text(text.replace('kind = "random-forest", per', "per"))
    status, _, err = typed(capsys, "provision", config, "--check")
    assert status != 0 and "line 8: teachers.kind: small-cnn learns from images alone" in err


def test_what_is_unwise_is_warned_of(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = CONFIG.replace("epsilon = 3.0", "epsilon = 100000.0").replace("sigma = 4.0", "sigma = 40.0")
    text = text.replace('random-forest", per', 'own.module:Forest", per')
    config.write_text(text + 'holdout = { source = "labelled.npz" }\n')
    status, _, err = typed(capsys, "provision", config, "--json")
    assert status == 0
    for words in (
        "budget.epsilon = 100000 promises hardly anything",
        "the noise is large for so few votes",
        "each institution must allow own.module:Forest",
        "the holdout has no record of the class yes",
        "a round needs every party",
    ):
        assert words in err


def test_a_party_is_revoked_whatever_became_of_the_pool(
    config: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    provision(capsys, config)
    (tmp_path / "pool.npz").unlink()
    assert provision(capsys, config, "--revoke", "birch")["expected"] == ["ash", "cedar"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ('address = "localhost"', "is not an address"),
        ('address = "elsewhere:1"', "must be on the host"),
        ('address = "localhost:1", extra = 1', "extra"),
    ],
)
def test_a_wrong_file_is_told_by_its_place(wrong: str, words: str, config: Path) -> None:
    config.write_text(CONFIG.replace('address = "localhost:1"', wrong))
    with pytest.raises(ConfigurationError, match=words):
        read_consortium(config)


def test_status_of_a_consortium_that_nobody_has_joined(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    provision(capsys, config)
    status, out, _ = typed(capsys, "coordinator", "status", config, "--json")
    found = json.loads(out)
    assert status == 0 and found["state"] == "not started" and found["served"] is False
    assert {party["membership"] for party in found["parties"].values()} == {"expected"}
    assert all(party["join_code_until_utc"] for party in found["parties"].values())
    assert found["privacy"]["epsilon_spent"] == 0.0
    status, out, _ = typed(capsys, "coordinator", "status", config)
    assert status == 0 and "not served now" in out and "ash" in out


def test_status_of_no_consortium_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in (tmp_path / "nowhere", tmp_path):
        status, _, err = typed(capsys, "coordinator", "status", place)
        assert status == 9 and "collegium provision" in err and len(err.splitlines()) == 1
