"""An operator with the run's folder in hand: it puts old files back, edits the configuration and starts again."""

from __future__ import annotations

import itertools
import json
import shutil
import sqlite3
from contextlib import closing

import pytest
from adversaries.conftest import Study
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from support.scripted_parties import LocalParties, ScriptedParty
from support.typist import typed

from collegium.errors import BudgetExceeded, ConfigurationError, LedgerCorrupt, QuorumNotReached
from collegium.parties.answer_book import AnswerBook
from collegium.parties.known_ledger import KnownLedger
from collegium.parties.policy import PolicyConfig
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.verifier import verify
from collegium.protocol.replies import Description, LedgerHead, ReplyBody
from collegium.protocol.requests import Describe, RequestBody, ShowLedger


def test_an_older_copy_of_the_ledger_is_noticed_and_no_label_is_drawn_again(study: Study) -> None:
    study.label()
    shutil.copyfile(study.ledger, study.folder / "older")
    before = study.label(budget__epsilon=12.0, queries__count=20)
    assert before.labels is not None and before.labels.answered > 10
    shutil.copyfile(study.folder / "older", study.ledger)
    with pytest.raises(LedgerCorrupt, match="an older copy was put in its place"):
        study.label(budget__epsilon=12.0, queries__count=20)


def keep_heads(study: Study) -> None:
    """Parties as a start leaves them: each reads its own file with the ledger's head."""
    for name, party in study.parties.by_name.items():
        party.ledger = KnownLedger(AnswerBook(study.folder / name, name, PolicyConfig(), None))


@pytest.mark.slow
@pytest.mark.parametrize("what", ["older", "begun anew", "rewritten"])
def test_an_operator_that_rewrites_its_ledger_and_run_json_is_noticed_by_every_party_that_answered_since(
    study: Study, what: str
) -> None:
    keep_heads(study)
    own = study.ledger.parent
    if what == "older":
        study.label()
        shutil.copytree(own, study.folder / "older")
    study.label(budget__epsilon=12.0, queries__count=20)
    shutil.copytree(own, study.folder / "newest")
    shutil.rmtree(own)
    if what == "older":
        shutil.copytree(study.folder / "older", own)
    elif what == "rewritten":  # the same charges, made by other parties that know nothing
        Study(study.folder).label(budget__epsilon=12.0, queries__count=20)
    keep_heads(study)
    cast = study.parties.votes_cast()
    with pytest.raises(QuorumNotReached, match="refused-ledger") as refused:
        study.label(budget__epsilon=12.0, queries__count=24)
    assert {outcome.partition(":")[0] for outcome in refused.value.outcomes.values()} == {"refused-ledger"}
    assert study.parties.votes_cast() == cast
    shutil.rmtree(own)
    shutil.copytree(study.folder / "newest", own)
    after = study.label(budget__epsilon=12.0, queries__count=24)
    assert after.labels is not None and after.labels.asked == 24
    with Ledger.read(study.ledger) as ledger:
        assert {str(party.ledger.head()) for party in study.parties.by_name.values()} == {str(ledger.head())}


def test_a_head_that_a_party_kept_is_what_an_auditor_needs(study: Study) -> None:
    """A liar may show the parties one chain and publish another: what they kept is not in that."""
    keep_heads(study)
    study.label()
    kept = str(study.parties.by_name["party-0"].ledger.head())
    verify(study.ledger, head=kept)
    shutil.rmtree(study.ledger.parent)
    Study(study.folder).label()
    with pytest.raises(LedgerCorrupt, match="printed, and cut or rewritten since"):
        verify(study.ledger, head=kept)


def followed_by(study: Study, capsys: pytest.CaptureFixture[str]) -> dict[str, list[str]]:
    """The parties that signed heads of the published ledger, with their keys, as `collegium ledger verify` says."""
    status, out, err = typed(capsys, "ledger", "verify", study.ledger, "--json")
    assert not status, err
    return dict(json.loads(out)["followed_by"])


def test_a_ledger_that_no_party_was_shown_bears_no_partys_signature(
    study: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = {name: Ed25519PrivateKey.generate() for name in study.parties.by_name}
    study.keys = {name: key.public_key().public_bytes_raw() for name, key in keys.items()}
    for name, party in study.parties.by_name.items():
        party.ledger = KnownLedger(AnswerBook(study.folder / name, name, PolicyConfig(), None), keys[name].sign)
    study.parties.by_name["party-5"].ledger = KnownLedger(None, lambda _: bytes(64))  # garbage is not kept
    study.label()
    with Ledger.read(study.ledger) as ledger:
        head = str(ledger.head())
    signed = {name: [key.hex(), head] for name, key in study.keys.items() if name != "party-5"}
    assert followed_by(study, capsys) == signed

    shutil.copyfile(study.ledger, study.folder / "shown")
    shutil.rmtree(study.ledger.parent)
    Study(study.folder).label()  # what the operator publishes, by parties of its own making
    assert followed_by(study, capsys) == {}
    with closing(sqlite3.connect(study.ledger)) as published:
        published.execute("ATTACH ? AS shown", (str(study.folder / "shown"),))
        published.execute("INSERT INTO witnesses SELECT * FROM shown.witnesses")
        published.commit()
    assert "party-0 did not sign this ledger's head" in typed(capsys, "ledger", "verify", study.ledger)[2]


def test_a_party_that_makes_up_heads_is_left_out_and_stops_nobody(study: Study) -> None:
    made_up = itertools.count(1)

    def lie(request: RequestBody) -> ReplyBody | None:
        false = f"{next(made_up)}:{'ab' * 32}"
        if isinstance(request, Describe):
            return Description("party-3", "test", 5, "scripted", false)
        return LedgerHead(false) if isinstance(request, ShowLedger) else None

    study.parties.by_name["party-3"].answer = lie
    record = study.label(votes__quorum=0.8)
    assert record.labels is not None and record.labels.answered == 10
    assert record.parties["party-3"].status == "protocol: does not follow the ledger that it is shown"
    assert next(made_up) < 5 and record.parties["party-3"].rounds_answered == 0


def test_a_ledger_that_is_gone_is_not_begun_anew_under_the_same_run(study: Study) -> None:
    study.label()
    study.ledger.unlink()
    with pytest.raises(LedgerCorrupt, match="is gone"):
        study.label()
    assert not study.ledger.exists()


def test_a_budget_that_is_lowered_afterwards_does_not_become_the_guarantee(study: Study) -> None:
    """7.797 were charged once and the report said: the guarantee to publish is ε = 1."""
    adaptive = {
        "mechanism": {"name": "confident-gnmax", "parameters": {"sigma1": 20.0, "sigma2": 6.0, "threshold": 5.0}}
    }
    first = study.label(**adaptive)
    assert 3.0 < first.privacy.epsilon <= 10.0 and first.privacy.adaptive
    again = study.label(**adaptive, budget__epsilon=1.0)
    assert again.privacy.epsilon == first.privacy.epsilon >= verify(study.ledger).bounds("record", "replace")[0]


def test_a_run_in_another_unit_is_charged_for_what_the_runs_before_cost_that_unit(study: Study) -> None:
    study.label()
    with Ledger.read(study.ledger) as ledger:
        record, party = ledger.epsilon(), ledger.epsilon(("party", "replace"))
        assert record < party
    study.label("job", range(30, 34), budget__unit="party")
    with Ledger.read(study.ledger) as ledger:
        assert ledger.epsilon() > party, "in the party's unit, what came before included"
        assert ledger.epsilon(("record", "replace")) > record
    spent = verify(study.ledger).charges
    try:
        late = study.label("late", range(40, 44), budget__unit="party", budget__epsilon=record)
        assert late.labels is not None and late.labels.stopped
    except BudgetExceeded:
        pass  # where none of its inputs had a label before
    assert verify(study.ledger).charges == spent


def test_runs_with_more_teachers_or_less_noise_pay_for_it_from_the_one_budget(study: Study) -> None:
    few_teachers = LocalParties({f"party-{n}": ScriptedParty(f"party-{n}", seed=n, teachers=1) for n in range(6)})
    Study(study.folder, few_teachers).label(budget__unit="party", teachers__per_party=1)
    with Ledger.read(study.ledger) as ledger:
        few = ledger.epsilon()
    study.label("job", range(30, 40), budget__unit="party", teachers__per_party=5)
    with Ledger.read(study.ledger) as ledger:
        more = ledger.epsilon()
    assert more > 2 * few
    stopped = study.label(
        "third", range(40, 60), budget__unit="party", mechanism__parameters={"sigma": 20.0}, budget__epsilon=more * 1.2
    )
    found = verify(study.ledger)
    assert stopped.labels is not None and stopped.labels.stopped
    with Ledger.read(study.ledger) as ledger:
        assert more <= ledger.epsilon() <= more * 1.2
    assert few < found.bounds("party", "replace")[0] <= more
    assert list(dict.fromkeys(terms["mechanism"]["sigma"] for terms, _ in found.periods)) == [40.0, 20.0]


@pytest.mark.slow
@pytest.mark.parametrize("done", ["nothing", "moved", "copied", "deleted"])
def test_a_spent_account_refuses_every_study_wherever_the_folders_of_runs_went(study: Study, done: str) -> None:
    """An analyst who wants more labels than the records' account pays for. The account lies in no run's folder."""
    study.ledger.parent.mkdir()
    study.label("first", study="first")
    with Ledger.read(study.ledger) as ledger:
        spent = ledger.epsilon()
    charges, first = verify(study.ledger).charges, study.folder / "first"
    if done == "moved":
        first.rename(study.folder / "elsewhere")
    elif done == "copied":
        for copy in ("second", "elsewhere"):
            shutil.copytree(first, study.folder / copy)
    elif done == "deleted":
        shutil.rmtree(first)
    more = {"budget__epsilon": 1.001 * spent, "queries__count": 30}
    for folder, name in itertools.product(("first", "second", "elsewhere"), ("first", "second")):
        cast = study.parties.votes_cast()
        try:
            record = study.label(folder, study=name, **more)
            assert name == "first" and record.labels is not None, "labels that this study has paid for"
            assert record.labels.answered == 10 and "is spent" in str(record.labels.stopped)
        except BudgetExceeded as error:
            assert "is spent" in str(error)
        except ConfigurationError:
            assert done == "copied"
        assert study.parties.votes_cast() == cast and verify(study.ledger).charges == charges
        with Ledger.read(study.ledger) as ledger:
            assert ledger.epsilon() == spent


@pytest.mark.parametrize(("first", "then"), [(None, 7), (7, None)])
def test_labels_drawn_from_a_seed_are_never_sold_as_private(study: Study, first: int | None, then: int | None) -> None:
    study.label(seed=first)
    with pytest.raises(ConfigurationError, match="keep the seed as it was"):
        study.label("job", range(30, 34), seed=then)
    assert verify(study.ledger).periods[-1][0]["noise"] == ("system" if first is None else "seeded")


def test_a_run_that_is_refused_leaves_the_terms_as_they_were(study: Study) -> None:
    study.label()
    with Ledger.read(study.ledger) as ledger:
        head = ledger.head()
    with pytest.raises(ConfigurationError, match="another"):
        study.label(mechanism={"name": "lnmax", "parameters": {"gamma": 0.05}})
    with Ledger.read(study.ledger) as ledger:
        assert ledger.head() == head
