"""A whole job, in memory: what is paid once, what a site refuses, and what it tells when it cannot serve."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="NVFlare is not installed: pip install collegium-nvflare")

from federation import Federation, request_count

from collegium.protocol.messages import Reply
from collegium_nvflare import tasks
from collegium_nvflare.executor import PartyExecutor
from collegium_nvflare.trial import Trial

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    """A site makes its process write private files; the next test's process does not stay so."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial.make(tmp_path / "trial", parties=5, rounds=2)


@pytest.fixture
def federation(trial: Trial) -> Federation:
    return Federation(trial.folder / "federation", trial.job(), trial.sites)


def submit(federation: Federation, trial: Trial, **settings: float) -> list[str]:
    return federation.submit(trial.own, **settings)


@contextmanager
def another_server(trial: Trial) -> Iterator[None]:
    """Within this, the server has nothing of what it kept."""
    own = trial.run.path.parent.parent
    kept = own.rename(own.with_name("kept"))
    try:
        yield
    finally:
        shutil.rmtree(own, ignore_errors=True)
        kept.rename(own)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trial, Federation]:
    """A consortium whose job is done."""
    trial = Trial.make(tmp_path_factory.mktemp("finished") / "trial", parties=5, rounds=2)
    federation = Federation(trial.folder / "federation", trial.job(), trial.sites)
    assert submit(federation, trial) == []
    return trial, federation


def test_a_job_that_is_submitted_again_asks_and_pays_nothing_more(finished: tuple[Trial, Federation]) -> None:
    trial, federation = finished
    first, asked, labels = trial.run.read(), request_count(federation), trial.run.labels_csv.read_bytes()
    assert first is not None and first.state == "finished" and asked > 0
    assert submit(federation, trial) == []
    again = trial.run.read()
    assert request_count(federation) == asked
    assert again is not None and again.privacy == first.privacy and trial.run.labels_csv.read_bytes() == labels


def test_a_site_refuses_another_task_than_the_one_that_it_agreed_to(finished: tuple[Trial, Federation]) -> None:
    trial, _ = finished
    agreed = trial.consortium.read_text()
    try:
        trial.consortium.write_text(agreed.replace('"ill"]', '"ill", "unsure"]'))
        other = Federation(trial.folder / "other-task", trial.job(), trial.sites)
    finally:
        trial.consortium.write_text(agreed)
    with another_server(trial):
        ended = submit(other, trial)
    assert len(ended) == 1 and "0 sites joined" in ended[0] and "its own settings do not let it serve" in ended[0]


def test_a_site_refuses_a_server_with_another_authority(finished: tuple[Trial, Federation]) -> None:
    """Planted: a server that lost its folder, or somebody in its place, begins anew and would be told everything."""
    trial, _ = finished
    other = Federation(trial.folder / "other-server", trial.job(), trial.sites)
    with another_server(trial):
        ended = submit(other, trial)
        assert not trial.run.labels_csv.exists()
    assert len(ended) == 1 and ended[0].startswith("quorum: 0 parties are ready")
    assert "refused-ledger" not in ended[0] and "accepts neither its certificate nor its issuer" in ended[0]


def test_a_job_that_was_aborted_goes_on_where_it_stopped(trial: Trial, federation: Federation) -> None:
    federation.aborts_at = 30
    ended = submit(federation, trial)
    federation.aborts_at = None
    assert len(ended) == 1 and "the job was aborted; submit it again" in ended[0]
    assert submit(federation, trial) == []
    record = trial.run.read()
    assert record is not None and record.state == "finished"
    assert record.privacy is not None and record.privacy.epsilon <= 4.0


def test_a_site_that_names_not_all_of_the_others_takes_part_in_no_sum(trial: Trial, federation: Federation) -> None:
    party_file = trial.policy_of(trial.sites[0]).with_name("party.toml")
    party_file.write_text(party_file.read_text().replace(f', "{trial.sites[4]}"', ""))
    assert submit(federation, trial) == []
    record = trial.run.read()
    assert record is not None
    assert record.rounds[0].failed.keys() == {trial.sites[0]}, "it is not asked again"
    assert all(one.answered == len(trial.sites) - 1 for one in record.rounds)
    assert "names no such party" in record.rounds[0].failed[trial.sites[0]]


def test_a_site_that_cannot_serve_tells_neither_values_nor_paths(trial: Trial, federation: Federation) -> None:
    file = trial.policy_of(trial.sites[0]).with_name("party.toml")
    secret = file.with_name("canary.csv")
    secret.write_text("age,pressure,glucose,outcome\n1,2,3,canary-value\n")
    file.write_text(
        f'parties = {list(trial.sites)}\n[data]\nsource = "{secret}"\nlabel = "outcome"\none_row_each = true\n'
    )
    told: list[str] = []
    original = tasks.failed

    def listen(error: Exception) -> object:
        answer = original(error)
        told.append(f"{error}")
        assert "canary" not in answer.to_bytes().decode("latin-1")
        return answer

    with pytest.MonkeyPatch.context() as patch:  # to listen; the answers are the real ones
        patch.setattr(tasks, "failed", listen)
        assert submit(federation, trial, wait_s=0.5) == []
    assert any("canary-value" in text for text in told), "the site's own log names the value"


def test_a_site_without_its_files_leaves_the_others_to_go_on(trial: Trial, federation: Federation) -> None:
    trial.policy_of(trial.sites[0]).with_name("party.toml").unlink()
    assert submit(federation, trial) == []
    record = trial.run.read()
    assert record is not None and record.state == "finished" and record.rounds[0].answered == 4


def test_too_few_sites_end_the_job_with_each_ones_reason(trial: Trial, federation: Federation) -> None:
    for site in trial.sites[:3]:
        trial.policy_of(site).with_name("party.toml").unlink()
    ended = submit(federation, trial)
    assert len(ended) == 1 and ended[0].startswith("quorum: 2 sites joined, 4 are needed")
    assert all(site in ended[0] for site in trial.sites[:3])


def test_a_site_that_answers_another_request_does_not_count(trial: Trial, federation: Federation) -> None:
    """Planted: a liar gives the reply of an earlier request for the present one."""
    liar, kept = trial.sites[0], list[bytes]()
    submit_own = federation._execute

    def lying(site: str, task: object, server: object) -> None:
        if site == liar and getattr(task, "name", "") == tasks.REQUEST:
            received = task.result_received_cb  # type: ignore[attr-defined]

            def replay(client_task: object, fl_ctx: object) -> None:
                kept.append(client_task.result[tasks.REPLY])  # type: ignore[attr-defined]
                client_task.result[tasks.REPLY] = kept[0]  # type: ignore[attr-defined]
                received(client_task=client_task, fl_ctx=fl_ctx)

            task.result_received_cb = replay  # type: ignore[attr-defined]
        submit_own(site, task, server)  # type: ignore[arg-type]

    federation._execute = lying  # type: ignore[method-assign, assignment]
    assert submit(federation, trial) == []
    record = trial.run.read()
    assert record is not None and record.rounds[0].answered == 4
    assert len({Reply.from_bytes(data).request_id for data in kept}) > 1


def test_a_run_goes_on_without_a_site_that_nvflare_says_is_dead(trial: Trial, federation: Federation) -> None:
    federation.lives[trial.sites[2]] = 6
    assert submit(federation, trial) == []
    record = trial.run.read()
    assert record is not None and record.state == "finished"
    assert record.rounds[0].failed == {trial.sites[2]: "unreachable"}


def test_a_job_that_brings_its_own_policy_is_answered_under_the_sites(trial: Trial, federation: Federation) -> None:
    """Planted: whoever submits the job puts a policy without limits into it, and names it to the executor."""
    site = trial.sites[0]
    policy = trial.policy_of(site)
    floor = next(line for line in policy.read_text().splitlines() if line.startswith("minimum_noise_sums"))
    own = federation.job / "app_client" / "config"
    for name in ("party.toml", "policy.toml"):
        shutil.copyfile(policy.with_name(name), own / name)
    policy.write_text(policy.read_text().replace(floor, "minimum_noise_sums = 1000.0"))
    assert submit(federation, trial) == []
    record = trial.run.read()
    assert record is not None and record.rounds[0].failed[site].startswith("refused-noise: ")
    assert record.state == "finished", "without the site that refuses"
    with pytest.raises(TypeError):
        PartyExecutor(party_file=str(own / "party.toml"))  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("setting", "other", "told"),
    [
        ('folder = "consortium"', 'folder = "../../elsewhere"', "consortium.folder leads elsewhere"),
        ('folder = "consortium"', 'folder = "/tmp/elsewhere"', "consortium.folder leads elsewhere"),
        ('source = "pool.csv"', 'source = "/etc/passwd"', "cannot travel with a job"),
        ('source = "pool.csv"', 'source = "sqlite:///private.db"\nquery = "SELECT 1"', "cannot travel with a job"),
    ],
)
def test_a_job_reads_and_writes_nothing_else_at_the_server(
    trial: Trial, federation: Federation, setting: str, other: str, told: str
) -> None:
    file = federation.job / "app_server" / "config" / "consortium.toml"
    file.write_text(file.read_text().replace(setting, other))
    ended = submit(federation, trial)
    assert len(ended) == 1 and told in ended[0] and federation.seen == []
