"""Masked sums through the whole coordinator: what it learns, what it never sees, and how a round ends badly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from support.coordinators import coordinator_for
from support.scripted_parties import LocalParties, ScriptedParty

from collegium.coordinator.journal import Begun, Journal
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.errors import ConfigurationError, ProtocolViolation, QuorumNotReached, StorageError
from collegium.parties.answer_book import AnswerBook
from collegium.parties.policy import PolicyConfig
from collegium.parties.summing import Membership, SecureSums
from collegium.privacy.ledger.entry import Charge
from collegium.privacy.ledger.ledger import Ledger
from collegium.protocol.messages import Reply, Request
from collegium.protocol.replies import Counts, Failure, Fitted, SecureSumAnswer
from collegium.protocol.requests import Ask, SecureSumStep
from collegium.protocol.secure_sum import GraphPlan

NAMES = tuple(f"party-{n}" for n in range(6))
KEYS = {name: Ed25519PrivateKey.generate() for name in NAMES}
ROSTER = {name: key.public_key().public_bytes_raw() for name, key in KEYS.items()}


@dataclass
class MaskingParty:
    """A scripted party whose votes leave it under masks alone."""

    inner: ScriptedParty
    lie: int = 0
    """Added to its first count."""
    gone_after: int = 99
    """Sum steps that it answers before it disappears."""
    steps: int = 0
    run_later: str = "trial"
    """The run that messages after the first of a sum name."""
    left: list[tuple[str, str]] = field(default_factory=list)
    """Run and round of each vector that left."""
    prepared: dict[str, tuple[Ask, np.ndarray]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        name = self.inner.name
        book = AnswerBook(None, name, PolicyConfig(), None)
        membership = Membership("trial", ROSTER, KEYS[name].sign)
        self.sums = SecureSums(name, membership, book, lambda run_id, question, roster: None, self.note_leaving)

    def handle(self, request):
        if isinstance(request, Ask):
            votes = self.inner.handle(request)
            assert isinstance(votes, Counts)
            counts = votes.counts.copy()
            counts[0, 0] += self.lie
            self.prepared[request.round_id] = (request, counts)
            return self.sums.prepare(Request("id", "trial", request), lambda: counts)
        if isinstance(request, SecureSumStep):
            self.steps += 1
            if self.steps > self.gone_after:
                return Failure("unreachable", "gone")
            begins = request.message.WhichOneof("phase") == "advertise_keys"
            return self.sums(Request("id", "trial" if begins else self.run_later, request))
        return self.inner.handle(request)

    def note_leaving(self, run_id: str, asked: Ask) -> None:
        self.left.append((run_id, asked.round_id))


class TappedParties(LocalParties):
    """Keeps every byte that reaches the coordinator."""

    def __init__(self, parties) -> None:
        super().__init__(parties)
        self.received = bytearray()

    def ask(self, requests, *, timeout_s, on_reply=None):
        replies = super().ask(requests, timeout_s=timeout_s, on_reply=on_reply)
        for reply in replies.values():
            self.received += Reply("id", reply).to_bytes()
        return replies


class ForgetfulParties(LocalParties):
    """Holds of each reply what the asker has it hold, as sessions do."""

    def __init__(self, parties) -> None:
        super().__init__(parties)
        self.held: list[Reply] = []

    def ask(self, requests, *, timeout_s, on_reply=None):
        def noted(name, reply):
            held = None if on_reply is None else on_reply(name, reply)
            self.held.append(Reply("id", held or reply))
            return held

        return super().ask(requests, timeout_s=timeout_s, on_reply=noted)


@pytest.fixture
def masking() -> dict[str, MaskingParty]:
    return {name: MaskingParty(ScriptedParty(name, seed=n)) for n, name in enumerate(NAMES)}


def run(config: RunConfig, parties: LocalParties, folder: Path, public: PublicData) -> dict:
    coordinator = coordinator_for(config, parties, folder, public=public, signing_keys=ROSTER)
    return coordinator.label()


def test_masked_and_clear_runs_give_the_same_labels(
    config: Callable[..., RunConfig], masking: dict, parties: LocalParties, public: PublicData, tmp_path: Path
) -> None:
    run(config(), parties, tmp_path / "clear", public)
    record = run(config(votes__mode="masked"), LocalParties(masking), tmp_path / "masked", public)
    assert record.sum_mode == "masked"
    assert (tmp_path / "masked/labels.csv").read_text() == (tmp_path / "clear/labels.csv").read_text()


def test_a_vector_leaves_for_the_run_that_it_was_prepared_in_whichever_a_later_message_names(
    config: Callable[..., RunConfig], masking: dict, public: PublicData, tmp_path: Path
) -> None:
    """Records that voted in one run would else be taken to have voted in another."""
    masking["party-1"].run_later = "another"
    run(config(votes__mode="masked"), LocalParties(masking), tmp_path, public)
    assert masking["party-1"].left == masking["party-2"].left == [("trial", one) for one in masking["party-1"].prepared]


def test_what_the_coordinator_receives_in_masked_mode_holds_no_partys_votes(
    config: Callable[..., RunConfig], masking: dict, public: PublicData, tmp_path: Path
) -> None:
    tapped = TappedParties(masking)
    run(config(votes__mode="masked"), tapped, tmp_path, public)
    vectors = [counts for party in masking.values() for _, counts in party.prepared.values()]
    assert len(vectors) == 18 and len(tapped.received) > 18 * vectors[0].size * 2
    for counts in vectors:
        for width in ("<u2", "<u4", "<i8", "u1"):
            # A row of 4 counts would be found by chance in less than one run of 10^6 only when it is 8 bytes long;
            # eight rows at once are at least 32 bytes.
            assert counts.astype(width).tobytes() not in tapped.received


def test_the_tap_sees_the_votes_of_a_clear_run(
    config: Callable[..., RunConfig], parties: LocalParties, public: PublicData, tmp_path: Path
) -> None:
    tapped = TappedParties(parties.by_name)
    run(config(), tapped, tmp_path, public)
    party = parties.by_name["party-0"]
    first = party.rounds()[0]
    votes = party.handle(first)
    assert isinstance(votes, Counts)
    assert votes.counts.astype("<u2").tobytes() in tapped.received


def test_no_masked_vector_is_held_once_it_is_added_up(
    config: Callable[..., RunConfig], masking: dict, public: PublicData, tmp_path: Path
) -> None:
    forgetful = ForgetfulParties(masking)
    run(config(votes__mode="masked"), forgetful, tmp_path, public)
    vectors = [counts for party in masking.values() for _, counts in party.prepared.values()]
    answers = [reply.to_bytes() for reply in forgetful.held if isinstance(reply.body, SecureSumAnswer)]
    assert len(answers) == 5 * len(vectors) == 90
    assert max(map(len, answers)) < vectors[0].size


@pytest.mark.slow
@pytest.mark.parametrize("step", range(5))
def test_a_party_that_leaves_in_any_phase_is_named_and_the_round_goes_on(
    config: Callable[..., RunConfig], masking: dict, public: PublicData, tmp_path: Path, step: int
) -> None:
    masking["party-2"].gone_after = step
    record = run(config(votes__mode="masked", queries__batch=20), LocalParties(masking), tmp_path, public)
    assert record.labels.answered == 20
    first = record.rounds[0]
    assert first.failed == {"party-2": "unreachable"}
    # Whoever leaves once its masked votes are in is still counted in the sum.
    assert first.teachers == (25 if step < 3 else 30)


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        (Ask, "protocol: answered Fitted where votes were to be prepared"),
        (SecureSumStep, "protocol: answered Fitted in a secure sum"),
    ],
)
def test_a_party_that_answers_something_else_is_not_in_the_sum(
    config: Callable[..., RunConfig], masking: dict, public: PublicData, tmp_path: Path, phase: type, said: str
) -> None:
    """Votes in the clear too are something else: none is counted twice, or added beside the masked ones."""
    liar = masking["party-2"]
    honest = liar.handle
    liar.handle = lambda request: Fitted(5) if isinstance(request, phase) else honest(request)
    record = run(config(votes__mode="masked", queries__batch=20), LocalParties(masking), tmp_path, public)
    assert record.labels.answered == 20 and record.rounds[0].teachers == 25
    assert record.rounds[0].failed == {"party-2": said}


def test_too_many_leaving_ends_the_round_with_their_names(
    config: Callable[..., RunConfig], masking: dict, public: PublicData, tmp_path: Path
) -> None:
    for name in NAMES[:3]:
        masking[name].gone_after = 2
    with pytest.raises(QuorumNotReached, match=r"party-0.*party-1.*party-2"):
        run(config(votes__mode="masked"), LocalParties(masking), tmp_path, public)


def test_votes_that_do_not_add_up_are_noticed_although_masked(
    config: Callable[..., RunConfig], masking: dict, public: PublicData, tmp_path: Path
) -> None:
    row = masking["party-1"]
    row.lie = 1
    with pytest.raises(ProtocolViolation, match=r"does not sum to 30 teachers.*masks hide which"):
        run(config(votes__mode="masked"), LocalParties(masking), tmp_path, public)


def test_masked_sums_without_a_roster_are_refused(
    config: Callable[..., RunConfig], parties: LocalParties, public: PublicData, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="signing keys"):
        coordinator_for(config(votes__mode="masked"), parties, tmp_path, public=public)


@pytest.mark.parametrize("steps", [2, 4])
def test_a_noised_sum_is_paid_before_any_party_is_asked_and_once_however_often_its_opening_fails(
    config: Callable[..., RunConfig], masking: dict, public: PublicData, tmp_path: Path, steps: int
) -> None:
    """A party that was restarted in the midst of a few rounds used up the budget, although no sum was opened."""
    settings = config(votes__mode="masked+noised", queries__batch=20)
    for name in NAMES[:3]:
        masking[name].gone_after = steps  # before it masks its vector, or once it signed the list of survivors
    for _ in range(2):
        with pytest.raises(QuorumNotReached):
            run(settings, LocalParties(masking), tmp_path, public)
        with Ledger.read(tmp_path / "ledger.sqlite") as ledger:
            assert ledger.queries_charged() == 20 and not ledger.labels()
    for party in masking.values():
        party.gone_after = 99
    run(settings, LocalParties(masking), tmp_path, public)
    with Ledger.read(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.queries_charged() == 20 and len(ledger.labels()) == 20


def test_noised_screening_and_answer_are_two_sums_each_with_its_own_charge(
    config: Callable[..., RunConfig], masking: dict, public: PublicData, tmp_path: Path
) -> None:
    mechanism = {"name": "confident-gnmax", "parameters": {"sigma1": 3.0, "sigma2": 2.5, "threshold": 15.0}}
    settings = config(votes__mode="masked+noised", mechanism=mechanism, budget={"epsilon": 500.0}, queries__batch=20)
    record = run(settings, LocalParties(masking), tmp_path, public)
    answered = record.labels.answered
    assert answered + record.labels.abstained == 20 and answered > 10
    with Ledger.read(tmp_path / "ledger.sqlite") as ledger:
        charges = [entry.content for entry in ledger.entries() if isinstance(entry.content, Charge)]
    assert [(charge.purpose, charge.queries) for charge in charges] == [
        ("threshold", 20),
        ("release", answered),
    ]
    assert [item.queries for item in record.rounds] == [20, answered]


def test_lnmax_cannot_be_noised_by_the_parties(config: Callable[..., RunConfig]) -> None:
    with pytest.raises(ConfigurationError, match=r"does not suit lnmax.* gnmax"):
        config(votes__mode="masked+noised", mechanism={"name": "lnmax", "parameters": {"gamma": 0.1}})


def begun_sum(folder: Path) -> Path:
    """What opens the one sum that waits."""
    (file,) = folder.glob("open-sum-*")
    return file


def test_a_sum_that_waits_is_opened_later_although_one_of_its_parties_stays_away(
    config: Callable[..., RunConfig], masking: dict, public: PublicData, tmp_path: Path
) -> None:
    """Whatever the batch is then; nobody is asked about its inputs again."""
    five = {name: party for name, party in masking.items() if name != "party-5"}
    for party in five.values():
        party.gone_after = 4  # it signs the list of survivors
    with pytest.raises(QuorumNotReached, match=r"their sum is kept.*remove open-sum-"):
        run(config(votes__mode="masked", queries__batch=8), LocalParties(five), tmp_path, public)
    signed = set(asked_of(masking["party-0"]))
    for party in masking.values():
        party.gone_after = 99
        party.prepared.clear()
    without = {name: party for name, party in masking.items() if name != "party-0"}
    record = run(config(votes__mode="masked", queries__batch=6), LocalParties(without), tmp_path, public)
    assert (record.labels.answered, record.labels.stopped) == (20, None)
    assert not signed & {index for party in without.values() for index in asked_of(party)}
    assert not list(tmp_path.glob("open-sum-*")), "all of its labels are given"


def test_an_input_whose_sum_was_begun_is_asked_of_the_same_parties_whatever_the_batch(
    config: Callable[..., RunConfig], masking: dict, public: PublicData, tmp_path: Path
) -> None:
    five = {name: party for name, party in masking.items() if name != "party-5"}
    for party in five.values():
        party.gone_after = 4  # it signs the list of survivors
    with pytest.raises(QuorumNotReached):
        run(config(votes__mode="masked", queries__batch=8), LocalParties(five), tmp_path, public)
    begun_sum(tmp_path).unlink()  # what opens it is lost
    signed = set(asked_of(masking["party-0"]))
    for party in masking.values():
        party.gone_after = 99
        party.prepared.clear()
    settings = config(votes__mode="masked", queries__batch=6)
    without = {name: party for name, party in masking.items() if name != "party-0"}
    with pytest.raises(QuorumNotReached, match="party-0 must be there"):
        run(settings, LocalParties(without), tmp_path, public)
    assert not signed & {index for party in masking.values() for index in asked_of(party)}
    for party in masking.values():
        party.prepared.clear()
    record = run(settings, LocalParties(masking), tmp_path, public)
    assert (record.labels.answered, record.labels.stopped) == (20, None)
    assert len(signed) == 8 and sorted(asked_of(masking["party-0"])) == sorted({*asked_of(masking["party-5"]), *signed})
    assert not signed & set(asked_of(masking["party-5"]))


def test_the_parties_of_an_exact_sum_are_kept_whichever_run_notes_them(tmp_path: Path) -> None:
    """Each object that was made before wrote the file anew from what it knew, so that the others' notes were lost."""
    first, second = Journal(tmp_path), Journal(tmp_path)
    sums = [Begun(None, "classes", "roster", NAMES[: 3 + number % 2]) for number in range(20)]
    for number, sum_ in enumerate(sums):
        (first, second)[number % 2].begin([f"{number}.{at:03d}" for at in range(100)], sum_)
    for known in (first, second, Journal(tmp_path)):
        for number, sum_ in enumerate(sums):
            assert set(known.begun([f"{number}.{at:03d}" for at in range(100)])) == {sum_}
        assert known.begun(["20.000"]) == [None]


def test_of_two_runs_that_begin_a_sum_about_an_input_at_once_one_opens_it(tmp_path: Path) -> None:
    """Also where one of them is another study's: the input has one name in all of them."""
    first, second = Journal(tmp_path), Journal(tmp_path)
    known = Begun(None, "classes", "roster", None)
    for one in (first, second):
        one.begin(["an input"], known)
    second.begin(["an input"], known._replace(parties=NAMES[1:]))
    for key, other in (
        ("an input", known._replace(parties=NAMES[:-1])),
        ("two:an input", Begun("two", "classes", "roster", None)),
    ):
        with pytest.raises(QuorumNotReached, match="another run"):
            first.begin([key], other)
    assert first.begun(["an input", "two:an input"]) == [known._replace(parties=NAMES[1:])] * 2


@pytest.mark.parametrize("text", ["", "{", "3", "[[1, 2]]", '[["study", "classes", "roster", 3, []]]'])
def test_without_the_note_of_exact_sums_none_is_begun(tmp_path: Path, text: str) -> None:
    """Whoever lost it could have a second exact sum of an input, over other parties."""
    known = Begun(None, "classes", "roster", NAMES)
    Journal(tmp_path).begin(["an input"], known)
    (tmp_path / "exact-sums.json").write_text(text)
    with pytest.raises(StorageError, match=r"exact-sums\.json: .*restore it from a copy"):
        Journal(tmp_path).begin(["an input"], known._replace(parties=NAMES[1:]))
    assert (tmp_path / "exact-sums.json").read_text() == text


def asked_of(party: MaskingParty) -> list[int]:
    return [index for ask, _ in party.prepared.values() for index in ask.question.inputs.indices]


@pytest.mark.parametrize("lost", [False, True])
def test_on_a_sparse_graph_a_round_costs_its_inputs_and_no_others_where_what_opens_it_is_lost(
    lost: bool,
    config: Callable[..., RunConfig],
    masking: dict,
    public: PublicData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Six parties are too few for a sparse graph that protects; what it lacks is not looked at here."""
    plan = GraphPlan(6, 4, 3, 1, 2, 40, 0.0, 0.0, 4)
    monkeypatch.setattr("collegium.coordinator.run.factories.plan_graph", lambda *_, **__: plan)
    monkeypatch.setattr("collegium.protocol.secure_sum.setup.secrecy_failure", lambda *_: (0.0, 0))
    settings = config(votes__mode="masked", queries__batch=8)
    for party in masking.values():
        party.gone_after = 4  # it signs the list of survivors
    with pytest.raises(QuorumNotReached):
        run(settings, LocalParties(masking), tmp_path, public)
    signed = asked_of(masking["party-0"])
    if lost:
        begun_sum(tmp_path).unlink()
    for party in masking.values():
        party.gone_after = 99
        party.prepared.clear()
    record = run(settings, LocalParties(masking), tmp_path, public)
    asked = asked_of(masking["party-0"])
    assert len(signed) == 8 and len(asked) == 12 and not set(signed) & set(asked)
    assert (record.labels.answered, record.labels.stopped) == (12 if lost else 20, None)
    assert ("8 inputs cannot be asked again" in caplog.text) == lost
