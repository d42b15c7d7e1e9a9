"""What an institution refuses before it votes, and what it counts against itself."""

from __future__ import annotations

import io
import os
import re
import sqlite3
import tomllib
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from collegium_reproduction.interactive_gnmax import InteractiveGNMax
from hypothesis import given
from hypothesis import strategies as st
from support.typist import typed

from collegium.data.task import TeacherSettings
from collegium.errors import ConfigurationError, CostRefused, MechanismRefused, ModeRefused, Refused, StorageError
from collegium.parties.answer_book import AnswerBook, Voters
from collegium.parties.answers import Answer
from collegium.parties.config import PartyConfig, book_of, policy_of
from collegium.parties.enrolment import agreeing, not_agreed_to, policy_text
from collegium.parties.neighbours.budgets import RecordBudgets
from collegium.parties.policy import Policy, PolicyConfig, described
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.verifier import verify
from collegium.protocol.certificates import Authority
from collegium.protocol.identities import Credentials, issue_kit
from collegium.protocol.kinds.teacher_votes import CastVotes
from collegium.protocol.messages import Request
from collegium.protocol.question import PoolRange, QuestionTerms
from collegium.protocol.replies import Failure
from collegium.protocol.requests import Ask, Describe
from collegium.protocol.roster import AnnouncedCounts, AnnouncedLimits, AnnouncedTerms
from collegium_accounting.game.laws import Law, RenyiLaw, VectorLaw, block_epsilon, together
from collegium_accounting.mechanisms import AddedBy, Adjacency, RecordBudget, Unit, create
from collegium_accounting.mechanisms.class_sums import ClassSums
from collegium_accounting.noise.distributed import NoiseShare, closeness_to_one_gaussian
from collegium_accounting.renyi import WIDE_ORDERS, RenyiCurve, gaussian_curve

POOL = "ab" * 32


def cast(
    *indices: int, mode: str = "masked", mechanism: str = "gnmax", stage: str = "", honest: int = 0, **parameters: float
) -> CastVotes:
    terms = QuestionTerms(mechanism, parameters or {"sigma": 40.0}, "replace", mode, stage, honest)
    return CastVotes(terms, "ledger", TeacherSettings(), PoolRange(POOL, indices or (0,)), 10)


def ask(policy: PolicyConfig, request: CastVotes, hour: int = 12) -> None:
    Policy(policy, lambda: datetime(2026, 1, 5, hour, tzinfo=UTC))(Request("id", "run", Ask("round-1", request)))


def test_the_default_policy_takes_masked_sums_and_shows_no_votes() -> None:
    ask(PolicyConfig(), cast())
    with pytest.raises(Refused, match="clear"):
        ask(PolicyConfig(), cast(mode="clear"))


@pytest.mark.parametrize(
    "policy",
    [
        PolicyConfig(mechanisms=("lnmax",), sum_modes=("masked+noised",), minimum_noise_votes=3.0, queries=7, pools=()),
        PolicyConfig(mechanisms=("gnmax", "record-counts"), minimum_noise_votes=90.0, queries=107, pools=(POOL,)),
        PolicyConfig(),
    ],
)
def test_a_policy_with_the_lines_that_it_lacks_lacks_no_more(policy: PolicyConfig) -> None:
    counts = AnnouncedCounts(sum_mode="masked+noised", mechanism="record-counts", noise=4.0)
    terms = AnnouncedTerms(
        limits=AnnouncedLimits(epsilon=1.0, delta=1e-5, record_epsilon=2.0),
        sum_mode="masked",
        mechanism="gnmax",
        noise_votes=40.0,
        pools=(POOL,),
        answers=24,
        counts=(counts,),
    )
    lines = not_agreed_to(policy, terms.policy(), 83)
    mended = PolicyConfig.model_validate(policy.model_dump(exclude_none=True) | lines)
    assert not_agreed_to(mended, terms.policy(), 83) == {}
    assert {*policy.mechanisms} <= {*mended.mechanisms} and {*policy.sum_modes} <= {*mended.sum_modes}
    ask(mended, cast())


@pytest.mark.parametrize(
    ("policy", "request_", "word"),
    [
        (PolicyConfig(mechanisms=("lnmax",)), cast(), "gnmax"),
        (PolicyConfig(minimum_noise_votes=50), cast(), "50"),
        (PolicyConfig(minimum_noise_votes=21), cast(mechanism="lnmax", gamma=0.05), "20"),
        (
            PolicyConfig(minimum_noise_votes=30),
            cast(mechanism="confident-gnmax", sigma1=99, sigma2=20, threshold=9),
            "20",
        ),
        (PolicyConfig(), cast(mechanism="nzc", constant=5), "nzc"),
        (
            PolicyConfig(mechanisms=("nzc",)),
            cast(mechanism="nzc", constant=5, gamma=1, accept_no_privacy=1),
            "protects nobody",
        ),
        (PolicyConfig(), cast(mechanism="gnmax", gamma=5), "sigma"),
        (PolicyConfig(), cast(mechanism="gnmax", sigma=40, name=1), "no parameter"),
        (PolicyConfig(hours_utc=(20, 6)), cast(), "20 to 6"),
    ],
)
def test_a_request_outside_the_policy_is_refused_by_name(policy: PolicyConfig, request_: CastVotes, word: str) -> None:
    with pytest.raises(Refused, match=word):
        ask(policy, request_)


def test_a_mechanism_of_sums_over_all_records_is_not_answered_with_votes() -> None:
    terms = QuestionTerms.of(ClassSums(40.0, 3), "masked")
    asked = CastVotes(terms, "ledger", TeacherSettings(), PoolRange(POOL, (0,)), 3)
    with pytest.raises(MechanismRefused, match=f"class-sums is not for questions of the kind '{CastVotes.kind}'"):
        ask(PolicyConfig(), asked)


def test_hours_may_span_midnight() -> None:
    night = PolicyConfig(hours_utc=(20, 6))
    for hour in (20, 23, 0, 5):
        ask(night, cast(), hour)


def test_requests_that_show_no_votes_are_not_the_policys_business() -> None:
    Policy(PolicyConfig(mechanisms=()))(Request("id", "run", Describe()))


def test_a_misspelt_policy_names_its_mistake(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("minimum_noise = 3")
    with pytest.raises(ConfigurationError, match="minimum_noise"):
        PolicyConfig.read(path)


def worst_law(request: CastVotes, teachers: int) -> Law:
    described(request)  # refuses what no party answers
    return together(stage.law(Unit(teachers, Adjacency.ADD_REMOVE)) for stage in request.stages())


def worst_cost(request: CastVotes, order: float, teachers: int) -> float:
    """The Rényi divergence of this order of what the party charges itself for one answer."""
    law = worst_law(request, teachers)
    if isinstance(law, VectorLaw):
        return order * law.mu**2 / 2 + law.slack * (2 * order - 1) / (order - 1)
    assert isinstance(law, RenyiLaw)
    return law.values[WIDE_ORDERS.index(order)]


@given(st.lists(st.integers(0, 9), min_size=3, max_size=3), st.sampled_from([1.5, 2.0, 8.0, 32.0]))
def test_the_charge_covers_the_divergence_of_the_noisy_sums_with_and_without_any_votes_of_the_party(
    votes: list[int], order: float
) -> None:
    sigma = 30.0
    if not any(votes):
        return
    charged = worst_cost(cast(sigma=sigma), order, sum(votes))
    # Independent evaluation: the log moment of a Gaussian shifted by v, coordinate by coordinate, by quadrature.
    grid = np.linspace(-600, 600, 24001)
    exact = 0.0
    for moved in np.array(votes, dtype=float):
        log_p, log_q = -((grid - moved) ** 2) / (2 * sigma**2), -(grid**2) / (2 * sigma**2)
        mass = np.exp(order * log_p + (1 - order) * log_q - (order * (order - 1) * moved**2) / (2 * sigma**2))
        density = mass.sum() * (grid[1] - grid[0]) / (sigma * np.sqrt(2 * np.pi))
        if abs(order * moved) < 400:
            assert density == pytest.approx(1.0, rel=1e-6)
        exact += order * moved**2 / (2 * sigma**2)
    assert exact <= charged * (1 + 1e-12)
    if max(votes) == sum(votes):
        assert charged == pytest.approx(exact, rel=2e-3), "teachers that agree are the worst case"


def test_pure_mechanisms_cost_at_most_half_the_squared_loss_and_a_bounded_range_a_quarter_of_that() -> None:
    assert worst_cost(cast(mechanism="lnmax", gamma=0.1), 2.0, 3) <= 2.0 * (3 * 0.1) ** 2 / 2
    assert worst_cost(cast(mechanism="exponential", gamma=0.1), 2.0, 3) == pytest.approx(2.0 * 0.3**2 / 8)


def account(folder: Path, **limits: object) -> AnswerBook:
    return AnswerBook(folder, "clinic", PolicyConfig.model_validate(limits), None)


def noised(*indices: int) -> CastVotes:
    return cast(*indices, mode="masked+noised", stage="release", honest=3, sigma=40.0)


def leave(account: AnswerBook, request: CastVotes) -> None:
    """Have an answer leave; what its inputs are, the position says here."""
    contents = [b"input %d" % position for position in request.inputs.indices]
    account.leave(Answer.to("run", request, contents, b"roster"), np.zeros((len(contents), 2), dtype=np.int64))


def test_answers_are_charged_before_they_are_given_and_survive_a_restart(tmp_path: Path) -> None:
    first = account(tmp_path)
    leave(first, cast(0, 1, 2))
    spent = first.spent()
    first.close()
    again = account(tmp_path)
    assert again.spent() == spent > 0
    assert again.queries_answered() == 3
    assert spent == block_epsilon({worst_law(cast(), 1): 3}, 1e-5)


def allow_neighbours(book: AnswerBook, run: str, participations: int, voters: Voters = "records") -> None:
    """A run asks about neighbours with sigma 70: what a record may spend follows from that, whoever spends it."""
    budgets = RecordBudgets(book, voters, bytes(32), [b"somebody"], "rows", 0.01)
    with budgets.transaction(run, RecordBudget(1, participations, 1 / (2 * 70.0**2))):
        pass


def test_what_one_record_may_have_lost_is_stated_over_everything_that_was_answered(tmp_path: Path) -> None:
    mine = account(tmp_path)
    assert mine.record_spent_altogether() == (0.0, 0.0)
    leave(mine, cast(0, 1, 2))
    orders = np.array(WIDE_ORDERS)

    def epsilon(curve: np.ndarray) -> float:
        return RenyiCurve(WIDE_ORDERS, curve).to_epsilon(1e-5).epsilon

    # One vote moves: noise on the counts is shifted by the root of 2.
    of_votes = block_epsilon({VectorLaw(2**0.5 / 40.0): 3}, 1e-5)
    assert mine.record_spent_altogether() == (pytest.approx(of_votes, rel=1e-3), 1e-5)
    allow_neighbours(mine, "first", 2)
    assert mine.record_spent_altogether() == (
        pytest.approx(of_votes + epsilon(2 * orders / (2 * 70.0**2)), rel=1e-3),
        2e-5,
    )
    allow_neighbours(mine, "second", 1000)
    assert mine.record_spent_altogether() == (pytest.approx(of_votes + epsilon(0.01 * orders), rel=1e-3), 2e-5)
    mine.close()


def test_a_limit_of_queries_holds_over_rounds_and_a_refused_round_counts_nothing(tmp_path: Path) -> None:
    mine = account(tmp_path, queries=4)
    leave(mine, cast(0, 1, 2))
    with pytest.raises(Refused, match="3 of 4"):
        leave(mine, cast(3, 4))
    leave(mine, cast(3))
    assert mine.queries_answered() == 4


def test_an_answer_that_the_ledger_refuses_burns_no_count(tmp_path: Path) -> None:
    mine = account(tmp_path, epsilon=1.0)
    with pytest.raises(Refused):
        leave(mine, cast(7, sigma=0.5))
    assert mine.queries_answered() == 0
    leave(mine, cast(7))


def test_one_exact_sum_of_an_input_is_answered_ever_and_any_number_with_the_parties_noise(tmp_path: Path) -> None:
    mine = account(tmp_path)
    leave(mine, cast(7))
    leave(mine, cast(7))
    with pytest.raises(Refused, match="one is answered"):
        leave(mine, cast(6, 7, sigma=41.0))
    assert mine.queries_answered() == 1
    for number in (1, 2):
        leave(mine, noised(7))
        assert mine.queries_answered() == 1 + number


def test_what_a_refused_change_wrote_is_gone_and_the_ledgers_go_on(tmp_path: Path) -> None:
    """Charged and counted within a change that fails afterwards: nothing of it stays, in the file or in memory."""
    mine = account(tmp_path)
    leave(mine, cast(1))
    spent = mine.spent()
    with pytest.raises(ZeroDivisionError), mine.changing():
        leave(mine, cast(2))
        assert mine.queries_answered() == 2
        raise ZeroDivisionError
    assert (mine.queries_answered(), mine.spent()) == (1, spent)
    leave(mine, cast(2))
    mine.close()
    again = account(tmp_path)
    assert again.queries_answered() == 2 and again.spent() > spent
    assert len(verify(again.path, chain="party").charges) == 2


def test_its_own_epsilon_is_a_hard_stop(tmp_path: Path) -> None:
    mine = account(tmp_path, epsilon=0.5)
    leave(mine, cast(0))
    with pytest.raises(Refused, match="policy"):
        leave(mine, cast(1, sigma=0.5))


def test_an_epsilon_that_the_party_spends_as_one_voter_pays_for_no_votes_of_its_teachers(tmp_path: Path) -> None:
    mine = account(tmp_path, epsilon=5.0)
    allow_neighbours(mine, "first", 1, "party")
    with pytest.raises(CostRefused, match="kept for its votes as one among neighbours"):
        leave(mine, cast(0))
    assert mine.queries_answered() == 0


def test_what_the_forecast_lets_through_the_ledger_still_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug: whatever is asked for counts as affordable."""
    mine = account(tmp_path, epsilon=0.5)
    leave(mine, cast(0))
    spent = mine.spent()
    monkeypatch.setattr(Ledger, "affordable", lambda _, purpose, wanted, laws: wanted)
    with pytest.raises(CostRefused, match="policy: "):
        leave(mine, cast(1, sigma=0.5))
    assert (mine.queries_answered(), mine.spent()) == (1, spent)


def test_a_book_that_was_begun_at_another_delta_is_refused_and_closed(tmp_path: Path) -> None:
    path = account(tmp_path).path
    leave(account(tmp_path), cast(0))

    def connections() -> int:
        return sum(os.path.realpath(file) == str(path) for file in Path("/proc/self/fd").iterdir())

    with closing(sqlite3.connect(path)):
        assert connections() == 1
    with pytest.raises(ConfigurationError, match="delta") as refused:
        account(tmp_path, delta=1e-6)
    assert connections() == 0
    assert refused.tb is not None, "what was refused is held, so that nothing but the refusal closed the file"


def test_a_book_of_which_somebody_removed_a_table_says_what_to_do(tmp_path: Path) -> None:
    mine = account(tmp_path)
    leave(mine, cast(0))
    with closing(sqlite3.connect(mine.path)) as other:
        other.execute("DROP TABLE answered")
    with pytest.raises(StorageError, match="restore it from a copy"):
        leave(mine, cast(0))


def test_no_run_asks_with_a_rule_for_votes_that_are_at_hand() -> None:
    with pytest.raises(ModeRefused, match="interactive-gnmax is not answered in the mode"):
        worst_cost(cast(mechanism=InteractiveGNMax.name, sigma1=200, sigma2=100, threshold=5), 2.0, 4)


def test_the_partys_own_reckoning_includes_the_excess_of_summed_discrete_noise() -> None:
    """Three shares of 0.5 votes: their sum is no discrete Gaussian, and costs more than one."""
    sigma = 0.5 * 3**0.5
    asked = cast(mode="masked+noised", stage="release", honest=3, sigma=sigma)
    share = NoiseShare(sigma, 3)
    excess = 2 * closeness_to_one_gaussian(share.sigma_share, 3)
    law = worst_law(asked, 2)
    assert isinstance(law, RenyiLaw) and excess > 0.1
    without = gaussian_curve(2.0, sigma, WIDE_ORDERS).values
    assert (np.array(law.values) >= (without + 2.0 * excess) * (1 - 1e-12)).all()
    mechanism = create("individual-knn", sigma=sigma, participations=1)
    neighbours, exact = mechanism.record_budget(AddedBy(3)), mechanism.record_budget()
    assert neighbours is not None and exact is not None
    every = share.curve(WIDE_ORDERS, l2_squared=1.0, changed_entries=1).values
    assert (neighbours.rho_of_one_participation * np.array(WIDE_ORDERS) >= every * (1 - 1e-12)).all()
    assert neighbours.rho_of_one_participation > 1.1 * exact.rho_of_one_participation


def test_every_refusal_leaves_with_the_one_text_of_its_kind(tmp_path: Path) -> None:
    """What a policy or an account says of itself stays in the institution's log."""
    mine = account(tmp_path, epsilon=0.5, queries=3)
    leave(mine, cast(0))
    refused = {}
    for request in (cast(1, sigma=0.5), cast(2, sigma=0.4), cast(0, 0), cast(0, sigma=41.0), cast(3, 4, 5)):
        with pytest.raises(Refused) as caught:
            leave(mine, request)
        told = Failure.of(caught.value)
        assert refused.setdefault(told.code, told.message) == told.message
        assert not any(character.isdigit() for character in told.message)
    assert set(refused) == {"refused-cost", "refused-queries"}


@pytest.fixture
def after_a_trial(tmp_path: Path) -> Path:
    """The party.toml of an institution whose policy bears a trial, as enrolment wrote it."""
    issue_kit(Authority.create("trial"), tmp_path / "credentials", "ash", "party")
    limits = AnnouncedLimits(epsilon=0.2, delta=1e-5, record_epsilon=0.3)
    small = {"sum_mode": "masked+noised", "mechanism": "class-sums", "noise_votes": 16.0, "answers": 2}
    terms = AnnouncedTerms.model_validate({**small, "pools": [POOL], "limits": limits})
    (tmp_path / "policy.toml").write_text(policy_text(terms))
    file = tmp_path / "party.toml"
    file.write_text(
        'coordinator = "localhost:1"\ncredentials = "credentials"\nfolder = "state"\npolicy = "policy.toml"\n'
        '[data]\nsource = "records.csv"\none_row_each = true\n'
    )
    return file


MAIN = """
    sum_modes = ["masked+noised"]
    mechanisms = ["class-sums", "record-counts"]
    minimum_noise_sums = 4.5
    queries = 9  # and as much more as was answered
    delta = 1e-05
    record_epsilon = 1.2  # and more
"""
"""As a check prints the lines of a study."""


def sent(text: str, party: Path) -> tuple[Path, Path]:
    """The file with the lines that the operator sent, and the party's policy."""
    lines = party.with_name("lines.toml")
    lines.write_text(text)
    return lines, party.with_name("policy.toml")


def test_one_command_has_a_policy_of_a_trial_bear_the_main_study(
    after_a_trial: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, policy = sent(MAIN, after_a_trial)
    before = policy.read_text()
    status, out, _ = typed(capsys, "party", "agree", after_a_trial, lines, "--yes")
    assert (
        status == 0 and "record_epsilon = 1.2    # was 0.3" in out and "minimum_noise_sums = 4.5    # was 16.0" in out
    )
    borne, was = PolicyConfig.read(policy), PolicyConfig.model_validate(tomllib.loads(before))
    changed = {"minimum_noise_sums": 4.5, "record_epsilon": 1.2, "queries": 9}
    assert borne == was.model_copy(update=changed | {"mechanisms": ("class-sums", "record-counts")})
    assert [one for one in policy.read_text().splitlines() if one.startswith("#")] == [
        one for one in before.splitlines() if one.startswith("#")
    ]
    assert "bears this already" in typed(capsys, "party", "agree", after_a_trial, lines)[1]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ('sum_modes = ["clear"]', "sums in the clear show this institution's own"),
        ("seeded_noise = true", "no study needs seeded_noise"),
        ("few_parties = true", "no study needs few_parties"),
        ("record_epsilon = -1", "record_epsilon"),
        ("record_epsilon = inf", "record_epsilon would limit nothing"),
        ("epsilon = 1e306", "epsilon would limit nothing"),
        ('mechanisms = ["class-sums", "\\u009b2Kx"]', "characters that are not printed"),
        ('mechanisms = ["class-sums", "a\\u202eb"]', "characters that are not printed"),
    ],
)
def test_lines_that_no_study_needs_are_not_taken_over(
    asked: str, told: str, after_a_trial: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, policy = sent(f"{asked}\n", after_a_trial)
    before = policy.read_text()
    status, _, err = typed(capsys, "party", "agree", after_a_trial, lines, "--yes")
    assert status == 2 and told in " ".join(err.split()) and policy.read_text() == before


def test_a_setting_that_the_file_does_not_have_is_added_below_and_the_rest_stays() -> None:
    text = "# ours\nqueries = 7  # the board\n"
    agreed = agreeing(Path("policy.toml"), text, {"record_epsilon": 1.5})
    assert agreed == f"{text}record_epsilon = 1.5\n"
    assert PolicyConfig.model_validate(tomllib.loads(agreed)) == PolicyConfig(queries=7, record_epsilon=1.5)


def test_nothing_is_written_without_a_yes_or_over_several_lines(
    after_a_trial: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, policy = sent(MAIN, after_a_trial)
    before = policy.read_text()
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert typed(capsys, "party", "agree", after_a_trial, lines)[0] != 0 and policy.read_text() == before
    over_lines = before.replace('mechanisms = ["class-sums"]', 'mechanisms = [\n  "class-sums",\n]')
    policy.write_text(over_lines)
    status, _, err = typed(capsys, "party", "agree", after_a_trial, lines, "--yes")
    assert status == 2 and "has a setting over several lines" in " ".join(err.split())
    assert over_lines != before and policy.read_text() == over_lines


def test_what_is_used_already_is_told_beside_a_limit_that_rises(
    after_a_trial: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same lines once more, after half the study: whoever says yes must see that more is allowed than was asked."""
    lines, policy = sent(MAIN, after_a_trial)
    typed(capsys, "party", "agree", after_a_trial, lines, "--yes")
    config = PartyConfig.read(after_a_trial)
    book = book_of(config, policy_of(config), Credentials.load(config.credentials, "party", expired=True))
    for place in range(4):
        leave(book, cast(place))
    used = book.spent_of_limits()["record_epsilon"]
    before = policy.read_text()
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    out = typed(capsys, "party", "agree", after_a_trial, lines)[1]
    assert used > 0.1 and f"# was 1.2, of which {used:.4g} is used; 1.2 more is asked for" in out
    (raised,) = re.findall(r"record_epsilon = (\S+) ", out)
    assert 1.2 + used <= float(raised) < 1.21 + used
    assert "queries = 13    # was 9, of which 4 is used; 9 more is asked for" in out and policy.read_text() == before


def test_comments_behind_values_and_a_link_stay_where_a_policy_agrees(
    after_a_trial: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, policy = sent(MAIN, after_a_trial)
    before = policy.read_text()
    commented = before.replace("queries = 2\n", "queries = 2 # the board, # 7\n").replace(
        'mechanisms = ["class-sums"]', 'mechanisms = ["class-sums", "a # b"]# two'
    )
    kept = policy.rename(policy.with_name("kept.toml"))
    kept.write_text(commented)
    policy.symlink_to(kept.name)
    status, _, err = typed(capsys, "party", "agree", after_a_trial, lines, "--yes")
    assert status == 0, err
    assert policy.is_symlink() and PolicyConfig.read(kept).queries == 9
    assert "queries = 9  # the board, # 7\n" in kept.read_text()
    assert 'mechanisms = ["class-sums", "a # b", "record-counts"]  # two\n' in kept.read_text()


def test_less_noise_on_votes_is_no_less_noise_on_sums() -> None:
    """Planted once: where no floor of sums is written, that of votes holds, and was lowered for both."""
    policy = PolicyConfig(minimum_noise_votes=40.0)
    lines = not_agreed_to(policy, {"minimum_noise_votes": 3.0}, 0)
    mended = PolicyConfig.model_validate(policy.model_dump(exclude_none=True) | lines)
    assert mended.noise_floor(summed=False) == 3.0 and mended.noise_floor(summed=True) == 40.0
    both = not_agreed_to(policy, {"minimum_noise_votes": 3.0, "minimum_noise_sums": 5.0}, 0)
    assert both == {"minimum_noise_votes": 3.0, "minimum_noise_sums": 5.0}
    assert not_agreed_to(PolicyConfig(), {"minimum_noise_votes": 3.0}, 0) == {"minimum_noise_votes": 3.0}
