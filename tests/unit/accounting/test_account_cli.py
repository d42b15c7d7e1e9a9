"""`collegium account`, `plan` and `audit` through the real command: figures out, one clear line on bad input."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import collegium_reproduction.nearest.question  # noqa: F401  its mechanisms are named here
import numpy as np
import pytest
from collegium_reproduction.exact_losses import exact_divergences
from collegium_reproduction.paper_bounds import theorem_3

from collegium.cli import main
from collegium_accounting import commands
from collegium_accounting.divergences.grids import NoiseLaw
from collegium_accounting.game.laws import block_epsilon
from collegium_accounting.mechanisms import SeededNoise, create, known_names, mechanism_named
from collegium_accounting.mechanisms.parameters import fields_of
from collegium_accounting.renyi import PAPER_ORDERS, WIDE_ORDERS, Conversion, RenyiCurve
from collegium_accounting.terminal import on_one_thread

VOTES = np.random.default_rng(1).multinomial(250, [0.8, 0.1, 0.05, 0.05], 50)
CLASSIC = ("--bound", "classic")
"""The headline that takes no time: for tests of other figures."""

REQUIRED = {
    "mechanism",
    "queries",
    "delta",
    "epsilon",
    "epsilon_attained",
    "epsilon_gap",
    "epsilon_data_independent",
    "epsilon_data_independent_pld",
    "epsilon_paper_bound",
    "epsilon_exact",
    "order",
    "orders",
    "conversion",
}


@pytest.fixture
def collegium(capsys):
    def run(*arguments):
        status = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as stop:
            status = int(stop.code or 0)
        output = capsys.readouterr()
        return status, output.out, output.err

    return run


@pytest.fixture
def votes(tmp_path):
    path = tmp_path / "votes.npy"
    np.save(path, VOTES)
    return path


def test_account_prints_every_figure_of_saved_votes(collegium, votes):
    status, out, _ = collegium("account", "--mechanism", "lnmax", "--gamma", 0.05, "--votes", votes, "--json", *CLASSIC)
    shown = json.loads(out)
    assert status == 0 and set(shown) >= REQUIRED
    exact = RenyiCurve(WIDE_ORDERS, exact_divergences(VOTES, NoiseLaw("laplace", 20.0), WIDE_ORDERS).sum(axis=0))
    assert shown["epsilon_exact"] == pytest.approx(exact.to_epsilon(1e-5).epsilon, rel=1e-9)
    assert shown["epsilon_exact"] < shown["epsilon_paper_bound"] < shown["epsilon_data_independent"]
    assert shown["epsilon_data_independent"] == shown["epsilon"] == shown["epsilon_data_independent_classic"]
    assert "epsilon_exact" in shown["secret"]


def test_account_with_the_papers_orders_and_conversion_is_the_papers_epsilon(collegium, votes):
    given = ("account", "-m", "lnmax", "--gamma", 0.05, "--votes", votes, "--json", *CLASSIC)
    shown = json.loads(collegium(*given, "--orders", "paper", "--conversion", "classic")[1])
    paper = RenyiCurve(PAPER_ORDERS, theorem_3(VOTES, 0.05, PAPER_ORDERS).sum(axis=0))
    assert shown["epsilon_paper_bound"] == pytest.approx(paper.to_epsilon(1e-5, Conversion.CLASSIC).epsilon)
    assert shown["orders"] == list(PAPER_ORDERS)


@pytest.mark.parametrize("kind", ("npz", "csv", "headed csv"))
def test_account_reads_the_same_votes_from_every_file(collegium, votes, tmp_path, kind):
    other = tmp_path / ("other.npz" if kind == "npz" else "other.csv")
    if kind == "npz":
        np.savez(other, labels=np.zeros(3), votes=VOTES)
    else:
        head = "a,b,c,d\n" if kind == "headed csv" else ""
        other.write_text(head + "\n".join(",".join(map(str, row)) for row in VOTES) + "\n")
    given = ("account", "-m", "gnmax", "--sigma", 40, "--json", *CLASSIC, "--votes")
    assert collegium(*given, other)[1] == collegium(*given, votes)[1]


@pytest.mark.parametrize(
    "given",
    [
        ("gnmax", "--sigma", 40, "--queries", 1000),
        ("confident-gnmax", "--sigma1", 150, "--sigma2", 40, "--threshold", 200, "--queries", 1000, "--answered", 600),
        ("exponential", "--gamma", 0.05, "--queries", 100),
        (
            "knn",
            "--k",
            300,
            "--classes",
            10,
            "--threshold",
            210,
            "--sigma1",
            85,
            "--sigma2",
            25,
            "--sampling-rate",
            0.25,
            "--queries",
            1000,
            "--answered",
            700,
        ),
        ("individual-knn", "--sigma", 70, "--participations", 1),
        ("ptr", "--epsilon", 0.1, "--queries", 100),
        ("multilabel", "--sigma", 40, "--tau", 4, "--voters", 100, "--queries", 10),
        (
            *("multilabel-knn", "--k", 300, "--labels", 10, "--tau", 4, "--sigma", 50),
            *("--sampling-rate", 0.05, "--queries", 800),
        ),
    ],
)
def test_plans_without_votes_have_the_data_independent_values_alone(collegium, given):
    status, out, _ = collegium("account", "--mechanism", *given, "--json", *CLASSIC, "--loss-distribution")
    shown = json.loads(out)
    assert status == 0 and set(shown) >= REQUIRED
    assert 0 < shown["epsilon_data_independent"] < math.inf
    assert shown["epsilon_data_independent_pld"] > 0
    assert shown["epsilon_exact"] is None and shown["epsilon_paper_bound"] is None


def test_the_headline_is_certified_by_the_exact_accountant_and_stands_beside_what_an_adversary_attains(collegium):
    shown = json.loads(collegium("account", "-m", "gnmax", "--sigma", 40, "--queries", 286, "--json")[1])
    assert shown["bound"] == "exact"
    assert shown["epsilon_attained"] <= shown["epsilon"] <= 1.01 * shown["epsilon_attained"]
    assert shown["epsilon_gap"] == shown["epsilon"] - shown["epsilon_attained"]
    assert shown["epsilon"] == shown["epsilon_data_independent"] < 0.9 * shown["epsilon_data_independent_classic"]


def test_two_classes_cost_less_in_the_account_than_any_number_of_them(collegium):
    given = ("account", "-m", "lnmax", "--gamma", 0.1, "--queries", 4, "--adjacency", "add-remove", "--json")
    two = json.loads(collegium(*given, "--classes", 2)[1])
    assert two["epsilon"] < json.loads(collegium(*given)[1])["epsilon_attained"]


@pytest.mark.parametrize(
    "given",
    [
        ("gnmax", "--sigma", 40, "--queries", 4, "--unit", "party", "--teachers-per-party", 3),
        ("gnmax", "--sigma", 40, "--honest-survivors", 3, "--queries", 4),
        ("individual-knn", "--sigma", 70, "--participations", 1, "--levels", 4),
        ("gnmax", "--sigma", 40, "--queries", 4, "--delta", 1e-12),
        ("gnmax", "--sigma", 6000, "--queries", 100_000),
    ],
)
def test_where_no_game_is_played_the_headline_is_that_of_the_whole_noisy_vector(collegium, given):
    shown = json.loads(collegium("account", "-m", *given, "--json")[1])
    assert shown["bound"] == "exact" and shown["epsilon_attained"] is None
    assert (
        0.8 * shown["epsilon_data_independent_classic"] < shown["epsilon"] < shown["epsilon_data_independent_classic"]
    )


def test_an_account_says_who_adds_the_noise_and_charges_the_whole_vector_where_the_parties_do(collegium, votes):
    given = ("account", "-m", "gnmax", "--sigma", 40, "--queries", 286, "--json")
    plain, noised = (json.loads(collegium(*given, *more)[1]) for more in ((), ("--honest-survivors", 3)))
    assert (plain["noise_added_by"], plain["honest_survivors"]) == ("coordinator", None)
    assert (noised["noise_added_by"], noised["honest_survivors"]) == ("parties", 3)
    assert plain["parameters"] == noised["parameters"] and plain["epsilon"] < noised["epsilon"]
    shared = ("--honest-survivors", 3)
    of_votes = ("account", "-m", "gnmax", "--sigma", 40, *shared, "--votes", votes)
    laplace = ("account", "-m", "lnmax", "--gamma", 1, *shared, "--queries", 1)
    for wrong, said in ((of_votes, "--queries"), (laplace, "lnmax has none")):
        status, out, err = collegium(*wrong)
        assert status and out == "" and said in err and len(err.strip().splitlines()) == 1


@pytest.mark.slow
def test_an_account_loads_no_library_of_loss_distributions_unless_it_is_asked_for_them():
    code = (
        "import sys; from collegium.cli import main\n"
        "for more in ([], ['--loss-distribution']):\n"
        "    try: main([*sys.argv[1:], *more])\n    except SystemExit: pass\n"
        "    print('loaded:', 'dp_accounting' in sys.modules or 'scipy.stats' in sys.modules)"
    )
    given = [sys.executable, "-c", code, "account", "-m", "individual-knn", "--sigma", "70", "--participations", "1"]
    printed = subprocess.run(given, capture_output=True, text=True, check=True).stdout
    assert [line for line in printed.splitlines() if line.startswith("loaded:")] == ["loaded: False", "loaded: True"]


def test_individual_neighbours_are_accounted_for_as_records_that_come_or_go_and_never_as_replaced(collegium):
    given = ("account", "-m", "individual-knn", "--sigma", 70, "--participations", 1, "--json")
    shown = json.loads(collegium(*given)[1])
    assert shown["adjacency"] == "add-remove"
    assert shown["epsilon_data_independent_classic"] == pytest.approx(0.0456, abs=5e-5)
    assert shown["epsilon"] == pytest.approx(0.0404, abs=1e-4)
    for more in (("--adjacency", "replace"), ("--unit", "party", "--teachers-per-party", 3)):
        status, out, err = collegium(*given, *more)
        assert status == 7 and out == "" and len(err.strip().splitlines()) == 1


def test_what_counts_alone_do_not_show_is_not_audited(collegium):
    sampled = ("--k", 3, "--classes", 3, "--threshold", 2, "--sigma1", 1, "--sigma2", 1, "--sampling-rate", 0.1)
    status, out, err = collegium("audit", "-m", "knn", *sampled)
    assert status == 7 and out == "" and "audited" in err and len(err.strip().splitlines()) == 1


def test_the_help_has_an_option_for_every_parameter_of_every_mechanism(collegium):
    _, out, _ = collegium("account", "--help")
    # In account --delta is the target's, and an account needs no consent to no privacy.
    wanted = {name for kind in map(mechanism_named, known_names()) for name in fields_of(kind)} - {"accept_no_privacy"}
    missing = [name for name in wanted if f"--{name.replace('_', '-')}" not in out]
    assert len(wanted) > 10 and missing == []


def test_nzc_shows_its_claim_beside_the_truth(collegium, votes):
    given = ("account", "-m", "nzc", "--gamma", 1e-10, "--constant", 1e100, "--votes", votes, "--json")
    shown = json.loads(collegium(*given)[1])
    assert shown["epsilon_data_independent"] == "inf"
    assert shown["epsilon_claimed"] < 0.01
    shown = json.loads(collegium("account", "-m", "nzc", "--gamma", 1, "--constant", 9, "--queries", 3, "--json")[1])
    assert shown["epsilon_honest"] == "inf"


def test_a_party_with_four_teachers_pays_more_than_a_record(collegium):
    given = ("account", "-m", "gnmax", "--sigma", 40, "--queries", 100, "--json", "--teachers-per-party", 4, *CLASSIC)
    record = json.loads(collegium(*given)[1])
    party = json.loads(collegium(*given, "--unit", "party")[1])
    assert record["votes_per_unit"] == 1 and party["votes_per_unit"] == 4
    assert party["epsilon_data_independent"] > 2 * record["epsilon_data_independent"]


def test_more_queries_and_less_noise_cost_more(collegium):
    def epsilon(sigma, queries):
        given = ("account", "-m", "gnmax", "--sigma", sigma, "--queries", queries, "--json", "--bound", "classic")
        return json.loads(collegium(*given)[1])["epsilon_data_independent"]

    assert epsilon(40, 100) < epsilon(40, 200) < epsilon(30, 200)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("account", "-m", "lnmax", "--gamma", "0.05"), "--votes"),
        (("account", "-m", "lnmax", "--queries", "5"), "gamma"),
        (("account", "-m", "lnmax", "--gamma", "-1", "--queries", "5"), "gamma"),
        (("account", "-m", "nothing", "--queries", "5"), "nothing"),
        (("account", "--mechanism", "nothing", "--of-it", "5"), "no mechanism is called 'nothing'"),
        (("account", "-m", "gnmax", "--of-it", "5"), "No such option"),
        (("account", "-m", "lnmax", "--gamma", "1", "--queries", "5", "--delta", "2"), "delta"),
        (("account", "-m", "lnmax", "--gamma", "1", "--queries", "5", "--orders", "0.5"), "orders"),
        (("account", "-m", "lnmax", "--gamma", "1", "--queries", "5", "--orders", "x"), "orders"),
        (("account", "-m", "lnmax", "--gamma", "1", "--votes", "absent.npy"), "absent.npy"),
        (("plan", "--epsilon", "1", "--teachers", "100", "--gaps", "1.5"), "gaps"),
        (("plan", "--epsilon", "0.0001", "--teachers", "10", "-m", "gnmax"), "raise"),
        (("plan", "--epsilon", "0"), "epsilon > 0"),
        (("plan", "--epsilon", "1", "--queries", "5"), "class sums take no queries"),
        (("plan", "--epsilon", "1", "-m", "gnmax"), "needs the number of teachers"),
        (("plan", "--epsilon", "1", "--teachers", "0"), "teachers >= 1"),
        (("plan", "--epsilon", "1", "--teachers", "9", "--sigma", "3"), "--sigma belongs to one mechanism"),
        (("plan", "--epsilon", "1", "--teachers", "9", "-m", "class-sums"), "plans are made for"),
        (("audit", "-m", "lnmax", "--gamma", "1", "--teachers", "1"), "teachers"),
    ],
)
def test_bad_input_is_one_clear_line(collegium, given, says):
    status, out, err = collegium(*given)
    assert status != 0 and out == ""
    assert says in err and "Traceback" not in err and len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("content", (b"", b"not numpy", b"1,2\n3\n", b"1.5,2\n", b"-1,2\n", b"\x80\x81"))
@pytest.mark.parametrize("suffix", (".npy", ".csv", ".npz", ".txt"))
def test_a_bad_vote_file_is_one_clear_line(collegium, tmp_path, content, suffix):
    path = tmp_path / f"bad{suffix}"
    path.write_bytes(content)
    status, _, err = collegium("account", "-m", "lnmax", "--gamma", 1, "--votes", path)
    assert status != 0 and "bad" in err and "Traceback" not in err and len(err.strip().splitlines()) == 1


def test_votes_are_refused_under_sampling(collegium, votes):
    given = ("--k", 300, "--classes", 4, "--threshold", 210, "--sigma1", 85, "--sigma2", 25, "--sampling-rate", 0.25)
    status, _, err = collegium("account", "-m", "knn", *given, "--votes", votes)
    assert status != 0 and "sampling" in err


@pytest.mark.slow
def test_plan_keeps_its_budget_and_draws_the_trade_off(collegium, tmp_path):
    picture = tmp_path / "plan.png"
    given = (
        "plan",
        "--epsilon",
        1,
        "--teachers",
        250,
        "--gaps",
        "0.8,0.4",
        "--classes",
        2,
        "-m",
        "gnmax",
        "--plot",
        picture,
        "--json",
    )
    status, out, err = collegium(*given)
    assert status == 0, err
    shown = json.loads(out)
    assert picture.stat().st_size > 1000
    assert all(choice["epsilon"] <= 1 for choice in shown["choices"])
    best = shown["best"]
    assert best["agreement"] >= 0.95


@pytest.mark.bits
def test_plan_affords_as_many_queries_as_the_exact_accountant_certifies(collegium):
    given = ("plan", "--epsilon", 1, "--teachers", 60, "--gaps", "0.8", "--classes", 2, "-m", "gnmax", "--json")
    best = json.loads(collegium(*given)[1])["best"]

    def epsilon(queries):
        asked = ("--sigma", best["parameters"]["sigma"], "--queries", queries, "--classes", 2, "--json")
        return json.loads(collegium("account", "-m", "gnmax", *asked)[1])

    assert epsilon(best["queries"])["epsilon"] == best["epsilon"] <= 1 < epsilon(best["queries"] + 1)["epsilon"]
    assert epsilon(best["queries"])["epsilon_data_independent_classic"] > 1


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_plan_of_class_sums_keeps_its_epsilon(collegium, rounds):
    given = ("plan", "--epsilon", 2, "--classes", 3, "--rounds", rounds)
    status, out, _ = collegium(*given, "--json")
    best = json.loads(out)["best"]
    assert status == 0 and (best["mechanism"], best["queries"]) == ("class-sums", rounds)
    sums = create("class-sums", **best["parameters"])
    law = sums.stages[0].law(sums.unit())
    assert block_epsilon({law: rounds}, 1e-5) == best["epsilon"] <= 2
    status, out, _ = collegium(*given)
    assert status == 0 and ("one sum labels" if rounds == 1 else "3 sums label") in out and "δ = 1e-05" in out


def test_an_audit_that_finds_more_than_is_stated_fails_and_says_so(collegium, monkeypatch):
    class Half(SeededNoise):
        def gaussian(self, sigma, shape):
            return super().gaussian(sigma / 2, shape)

    given = ("audit", "-m", "gnmax", "--sigma", 3, "--teachers", 20, "--rounds", 2, "--seed", 1)
    status, out, _ = collegium(*given)
    assert status == 0 and "Audit of gnmax" in out and "consistent" in out
    monkeypatch.setattr(commands, "SeededNoise", Half)
    status, out, _ = collegium(*given)
    assert status == 1 and "Audit of gnmax" in out and "consistent" in out


def test_audit_reports_a_lower_bound_below_the_stated_epsilon(collegium):
    status, out, _ = collegium(
        "audit", "-m", "gnmax", "--sigma", 3, "--teachers", 20, "--rounds", 2, "--seed", 1, "--json"
    )
    shown = json.loads(out)
    assert status == 0 and (shown["runs"], shown["rounds"]) == (1_000_000, 2)
    assert 0 < shown["epsilon_lower_bound"] <= shown["epsilon_stated"]
    assert shown["share_reached"] == pytest.approx(shown["epsilon_lower_bound"] / shown["epsilon_stated"], abs=1e-3)


BEFOREHAND = ("--queries-chosen", "beforehand")


def test_a_published_epsilon_includes_its_own_cost_and_never_undercuts_the_secret_one(collegium, votes):
    arguments = ("account", "-m", "lnmax", "--gamma", 0.2, "--votes", votes, "--publish", 6, *BEFOREHAND, *CLASSIC)
    status, out, _ = collegium(*arguments, "--json")
    shown = json.loads(out)
    at_order_6 = exact_divergences(VOTES, NoiseLaw("discrete-laplace", 5.0), (6.0,)).sum(axis=0)
    secret = RenyiCurve((6.0,), at_order_6).to_epsilon(1e-5).epsilon
    # The ceiling fails with probability 1e-6 (a tenth of δ), which the published δ already holds.
    assert status == 0 and shown["epsilon_publishable"] > secret


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("-m", "lnmax", "--gamma", 0.05, "--queries", 5, "--publish", 6), "needs --votes"),
        (("-m", "exponential", "--gamma", 0.05, "--publish", 6), "Laplace or Gaussian"),
        (("-m", "lnmax", "--gamma", 0.05, "--publish", 1), "above 1"),
        (("-m", "lnmax", "--gamma", 0.05, "--publish", 6, "--unit", "party", "--teachers-per-party", 5), "one vote"),
        (("-m", "gnmax", "--sigma", 40, "--publish", 6, "--adjacency", "add-remove"), "one vote"),
        (("-m", "individual-knn", "--sigma", 40, "--participations", 1, "--publish", 6), "no data-dependent analysis"),
    ],
)
def test_what_cannot_be_published_is_refused(collegium, votes, given, says):
    with_votes = () if "--queries" in given else ("--votes", votes)
    status, _, err = collegium("account", *given, *with_votes, *BEFOREHAND, "--bound", "classic")
    assert status != 0 and says in err and len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("chosen", "status", "says"),
    [((), 2, "say how the queries were chosen"), (("--queries-chosen", "by-labels"), 7, "where labels chose")],
)
def test_nothing_from_votes_is_published_where_labels_chose_the_queries(collegium, votes, chosen, status, says):
    given = (
        "account",
        "-m",
        "lnmax",
        "--gamma",
        0.05,
        "--votes",
        votes,
        "--publish",
        6,
        *chosen,
        "--bound",
        "classic",
        "--json",
    )
    code, out, err = collegium(*given)
    assert (code, out) == (status, "") and says in err and len(err.strip().splitlines()) == 1


def test_an_account_without_privacy_says_why_it_has_no_loss_distribution(collegium):
    given = ("account", "-m", "exponential", "--gamma", 1, "--queries", 3000, "--loss-distribution", "--json")
    shown = json.loads(collegium(*given)[1])
    assert shown["bound"] == "exact"
    assert shown["epsilon_data_independent_pld"] is None and "above ε = 50" in shown["notes"][0]


@pytest.mark.parametrize("wanted", [None, "3"])
def test_a_command_of_the_accountant_computes_on_one_thread_unless_the_user_says_otherwise(monkeypatch, wanted):
    """Without that its products of small matrices spend most of their time waiting for each other."""
    threadpoolctl = pytest.importorskip("threadpoolctl")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if wanted is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", wanted)

    def pools():
        return [pool["num_threads"] for pool in threadpoolctl.threadpool_info()]

    seen = []
    with threadpoolctl.threadpool_limits(2):
        on_one_thread(lambda: seen.extend(pools()))()
        assert pools() == [2] * len(seen), "what was before is there again"
    assert seen and set(seen) == {1 if wanted is None else 2}
    assert all(command.__wrapped__ for command in (commands.account, commands.plan, commands.audit))


def test_class_sums_are_audited_as_the_whole_vectors_that_are_released(collegium):
    status, out, _ = collegium("audit", "-m", "class-sums", "--sigma", 4, "--classes", 3, "--seed", 1, "--json")
    shown = json.loads(out)
    assert status == 0 and (shown["rounds"], shown["teachers"], shown["consistent"]) == (1, 0, True)
    assert 0.6 < shown["share_reached"] < 1.0
