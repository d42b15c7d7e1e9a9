"""Teachers of different kinds in one consortium, and tables as institutions really have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coordinators import coordinator_for
from support.party_requests import KEY, Asker, cast

from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.data import DataSource, Examples, PoolStore, load
from collegium.data.task import OWN_CHOICE, CategoryColumn, NumberColumn, TableInputs, Task, TeacherSettings
from collegium.errors import ConfigurationError
from collegium.parties.answer_book import AnswerBook
from collegium.parties.config import PartyConfig
from collegium.parties.party import Party, unrestricted
from collegium.parties.policy import PolicyConfig
from collegium.parties.teachers.kinds import OwnTeacher
from collegium.protocol.replies import Description, Fitted
from collegium.protocol.requests import Describe
from collegium.settings import validate_config
from collegium.simulations.local import InProcessParties

TASK = Task(
    classes=("stays", "goes home"),
    inputs=TableInputs(
        columns=(
            NumberColumn(name="age", low=0, high=100),
            CategoryColumn(name="ward", categories=("surgery", "medicine")),
        )
    ),
)
OWN = TeacherSettings(kind=OWN_CHOICE, per_party=2)
FOREST = OwnTeacher(kind="random-forest", options={"trees": 5})
MLP = OwnTeacher(kind="mlp", options={"steps": 60, "hidden": 8})


def records(path: Path, count: int, seed: int) -> Examples:
    """A hospital's file: the young go home; some ages are missing, and some wards nobody else has."""
    generator = np.random.default_rng(seed)
    ages = generator.integers(1, 100, count)
    lines = ["patient,age,ward,outcome"]
    for number, age in enumerate(ages):
        ward = generator.choice(["surgery", "medicine", "Dialysis (new wing)", "", "NA"])
        written = generator.choice([str(age), f"{age}.0"]) if number % 7 else generator.choice(["", "?", "null"])
        lines.append(f"{number},{written},{ward},{'goes home' if age < 50 else 'stays'}")
    path.write_text("\n".join(lines))
    return load(DataSource(source=str(path), label="outcome", group="patient"), TASK, data_root=None)


def party(name: str, examples: Examples, own: OwnTeacher | None, pools: PoolStore, **more: Any) -> Party:
    options: dict[str, Any] = {"policy": unrestricted, "device": "cpu", "split_key": KEY} | more
    return Party(name, examples, TASK, folder=None, pools=pools, own_teacher=own, **options)


@pytest.fixture
def alpha(tmp_path: Path) -> Examples:
    return records(tmp_path / "alpha.csv", 200, 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["random-forest", "mlp", "sklearn.naive_bayes:GaussianNB"])
def test_unknown_categories_and_missing_values_teach_like_any_others(
    kind: str, alpha: Examples, tmp_path: Path, pools: PoolStore
) -> None:
    public = records(tmp_path / "public.csv", 100, 2)
    spec = pools.put(public.x)
    options: dict[str, Any] = {"random-forest": {"trees": 10}, "mlp": {"steps": 100, "hidden": 16}}.get(kind, {})
    settings = TeacherSettings(kind=kind, per_party=3, options=options)
    ask = Asker(party("alpha", alpha, None, pools, allowed_imports={kind}), 2)
    votes = ask.votes(spec, tuple(range(100)), settings).counts
    assert (votes.sum(axis=1) == 3).all()
    known = public.x[:, 1] == 0  # the age is there
    assert (votes.argmax(axis=1) == public.labels())[known].mean() > 0.8


def test_two_parties_of_different_kinds_answer_one_run(alpha: Examples, tmp_path: Path) -> None:
    public = records(tmp_path / "public.csv", 40, 3)
    pools = PoolStore(None)
    parties = {
        "alpha": party("alpha", alpha, FOREST, pools),
        "beta": party("beta", records(tmp_path / "beta.csv", 200, 4), MLP, pools),
    }
    values = {
        "name": "mixed",
        "task": TASK.model_dump(mode="json"),
        "pool": {"source": "public.csv"},
        "teachers": {"kind": OWN_CHOICE, "per_party": 2},
        "mechanism": {"name": "gnmax", "parameters": {"sigma": 0.2}},
        "budget": {"epsilon": 1e6},
        "queries": {"count": 30},
        "votes": {"mode": "clear", "quorum": 1.0},
        "seed": 1,
    }
    config = validate_config(values, RunConfig, "test")
    asked = InProcessParties(list(parties.values()), "mixed")
    coordinator = coordinator_for(config, asked, tmp_path / "run", public=PublicData(public, public))
    run = coordinator.label()
    assert run.labels.answered == 30
    shown = [Asker(one)(Describe()) for one in parties.values()]
    assert [one.teachers for one in shown] == [2, 2]
    # What a party chose is its own business.
    assert {one.teacher_kind for one in shown if isinstance(one, Description)} == {OWN_CHOICE}


def test_a_choice_gives_the_teachers_that_the_consortium_could_have_named(alpha: Examples, pools: PoolStore) -> None:
    spec = pools.put(alpha.x[:50])
    chosen = Asker(party("alpha", alpha, FOREST, pools), 2).votes(spec, tuple(range(50)), OWN)
    named = OWN.model_copy(update={"kind": FOREST.kind, "options": FOREST.options})
    assert np.array_equal(
        chosen.counts, Asker(party("alpha", alpha, None, pools), 2).votes(spec, tuple(range(50)), named).counts
    )
    other = Asker(party("alpha", alpha, MLP, pools), 2).votes(spec, tuple(range(50)), named)
    assert np.array_equal(chosen.counts, other.counts)  # where the consortium names a kind, that is the kind


def test_a_party_that_has_not_chosen_or_may_not_is_told(alpha: Examples, pools: PoolStore) -> None:
    none = Asker(party("alpha", alpha, None, pools), 2).fit(OWN)
    assert none.code == "configuration"
    assert "name one under [teacher] in the party's file" in none.message
    bayes = OwnTeacher(kind="sklearn.naive_bayes:GaussianNB")
    assert Asker(party("alpha", alpha, bayes, pools), 2).fit(OWN).code == "refused"
    assert Asker(party("alpha", alpha, bayes, pools, allowed_imports={bayes.kind})).fit(OWN) == Fitted(2)
    assert Asker(party("alpha", alpha, OwnTeacher(kind=OWN_CHOICE), pools), 2).fit(OWN).code == "configuration"


@pytest.mark.slow
def test_another_choice_is_no_way_around_what_was_agreed_to(alpha: Examples, pools: PoolStore, tmp_path: Path) -> None:
    """The same query again, after a restart with another kind, gets the answer of before: two would differ by votes."""
    asked = cast(pools.put(np.unique(alpha.x, axis=0)), tuple(range(50)), classes=2, settings=OWN)
    answers, others = [], []
    for own in (FOREST, MLP, FOREST):
        account = AnswerBook(tmp_path, "alpha", PolicyConfig(), None)
        answers.append(Asker(party("alpha", alpha, own, pools, account=account), 2)(asked).counts.tolist())
        others.append(Asker(party("alpha", alpha, own, pools), 2)(asked).counts.tolist())
        account.close()
    assert answers[0] == answers[1] == answers[2] == others[0] != others[1]


def test_a_choice_is_read_from_the_partys_file_and_options_belong_to_it(tmp_path: Path) -> None:
    path = tmp_path / "party.toml"
    path.write_text(
        'coordinator = "localhost:1"\ncredentials = "c"\nfolder = "f"\n[data]\nsource = "records.csv"\n'
        '[teacher]\nkind = "random-forest"\noptions = { trees = 5 }\n'
    )
    assert PartyConfig.read(path).teacher == FOREST
    path.write_text(path.read_text().replace("trees", "[trees"))
    with pytest.raises(ConfigurationError):
        PartyConfig.read(path)
    with pytest.raises(ValueError, match="takes no options here"):
        TeacherSettings(kind=OWN_CHOICE, options={"trees": 5})
