"""A consortium on one machine: a coordinator, and one real process per party, over TLS on the loopback.

Certificates are made for the run and kept in its folder, so that a run that is started again signs its ledger with the
same key.
"""

import time
from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from collegium.coordinator.rounds.rounds import Parties
from collegium.coordinator.run.announced import announced_terms
from collegium.coordinator.run.coordinator import Progress
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.service.sessions import GrpcParties
from collegium.coordinator.settings.run_config import RunConfig
from collegium.errors import CollegiumError, QuorumNotReached
from collegium.limits import FEW_PARTIES
from collegium.parties.teachers.splits import KEY_FILE, simulated_key
from collegium.protocol.certificates import Authority
from collegium.protocol.identities import issue_kit
from collegium.protocol.roster import Roster
from collegium.settings import toml_value
from collegium.simulations.cohort import COORDINATOR, ROSTER, CohortMember, PreparedRun, own_kinds
from collegium.simulations.party_processes import LEAVE_S, PartyProcess, PartyProcesses
from collegium.simulations.simulate import coordinator_of

HOST = "localhost"
POLICY = "policy.toml"
REPEATS = 100
"""How often rounds may be asked again: records that were made for a run have no budgets beside the run's own."""
NEEDED_BY = {
    "linear": "torch",
    "mlp": "torch",
    "random-forest": "sklearn.ensemble",
    "small-cnn": "torch",
}
"""The large library of each kind of teacher that has one."""
_CONNECT_S = 120.0


def launch(
    run: PreparedRun,
    on_progress: Callable[[Progress], None] | None = None,
    on_started: Callable[[list[PartyProcess]], None] | None = None,
    over: Callable[[Parties], Parties] = lambda parties: parties,
    host: PartyProcesses | None = None,
) -> RunRecord:
    """Do a prepared run with one process for each party.

    Parameters
    ----------
    on_started : called once all parties are connected, with their processes.
    over : what the coordinator reaches in place of the parties that it is given.
    host : has begun to load what the parties need, and begins them; made here where it is None.

    Returns
    -------
    The run's record.

    Raises
    ------
    QuorumNotReached
        If a party does not start, or too few answer.
    """
    authority = Authority.create(run.config.name)
    coordinator = issue_kit(authority, run.folder / COORDINATOR, "coordinator", "coordinator", hosts=[HOST])
    for member in run.cohort:
        issue_kit(authority, member.credentials, member.name, "party")
    roster = Roster.load(run.folder / ROSTER)
    with GrpcParties(credentials=coordinator, roster=roster, task=run.config.task, run_id=run.config.name) as parties:
        coordinating = coordinator_of(run, over(parties), on_progress, signer=coordinator.signing_key)
        coordinating.check()
        port = parties.start(f"{HOST}:0")
        images = run.config.task.inputs.kind == "image"
        with PartyProcesses(*likely(run.config)) if host is None else nullcontext(host) as copied:
            processes = copied.begin(_configs(run, port))
            if images and find_spec("torch"):
                import_module("torch")  # while the parties begin; what learns from images needs it later
            _wait_for_all(parties, processes)
            if on_started is not None:
                on_started(processes)
            try:
                result = coordinating.run()
            except CollegiumError as error:
                parties.farewell(f"the run stopped: {error}")
                if not isinstance(error, QuorumNotReached):
                    raise
                _wait_for_exit(processes)  # one that dies closes its connection before it has ended
                if dead := [f"{party.name} ended: {party.last_words()}" for party in processes if party.status]:
                    raise QuorumNotReached(f"{error}. {'; '.join(dead)}") from error
                raise
            parties.farewell("the run is finished")
            _wait_for_exit(processes)
    return result


def likely(config: RunConfig) -> list[str]:
    """The large libraries that every party of this run is likely to need."""
    kind = None if config.teachers is None else config.teachers.kind
    if kind in NEEDED_BY:
        return [NEEDED_BY[kind]]
    return ["torch"] if config.task.inputs.kind == "image" else []


def write_party_config(run: PreparedRun, member: CohortMember, port: int) -> Path:
    """The TOML file from which a party is served, in its own folder."""
    source = member.source.model_dump(exclude_defaults=True)
    # What the run asks is agreed to: the run's own budgets hold, and records made for it have no others.
    terms = announced_terms(run.config, run.config.queries.count, run.public.spec)
    agreed_to = {name: value for name, value in terms.policy().items() if name not in terms.limits.policy()}
    values = {"minimum_noise_votes": terms.noise_votes} | agreed_to | {"queries": REPEATS * terms.answers}
    values["sum_modes"] = [terms.sum_mode, *values["sum_modes"][1:]]  # records made for it may be summed in the clear
    values["few_parties"] = len(run.cohort) < FEW_PARTIES
    agreed = "".join(f"{name} = {toml_value(value)}\n" for name, value in values.items()) + "record_rho = inf\n"
    if kinds := own_kinds(run.config):
        agreed += f"teacher_imports = {toml_value(kinds)}\n"
    if run.config.seed is not None:
        agreed += "seeded_noise = true\n"
    (member.folder / POLICY).write_text(agreed, encoding="utf-8")
    settings: dict[str, object] = {
        "coordinator": f"{HOST}:{port}",
        "credentials": str(member.credentials),
        "roster": str(run.folder / ROSTER),
        "parties": [one.name for one in run.cohort],
        "policy": str(member.folder / POLICY),
        "collusion": run.config.votes.collusion,
        "folder": str(member.folder),
        "device": run.config.engine.device,
        "threads": run.config.engine.threads,
        "noise_seed": run.config.seed,
    }
    lines = [f"{key} = {toml_value(value)}" for key, value in settings.items() if value is not None]
    if member.source.group is None:
        source["one_row_each"] = False  # nobody said that the rows of a simulation are persons
    lines += ["[data]", *(f"{key} = {toml_value(value)}" for key, value in source.items())]
    path = member.folder / "party.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _configs(run: PreparedRun, port: int) -> dict[str, Path]:
    """For each party's name the file from which it is served."""
    if run.config.seed is not None:
        for member in run.cohort:
            (member.folder / KEY_FILE).write_bytes(simulated_key(run.config.seed, member.name))
    return {member.name: write_party_config(run, member, port) for member in run.cohort}


def _wait_for_all(parties: GrpcParties, processes: list[PartyProcess]) -> None:
    """Wait until every party is connected; QuorumNotReached, with its last line, if a party's process ends first."""
    deadline = time.monotonic() + _CONNECT_S
    while True:
        try:
            parties.wait_for([party.name for party in processes], timeout_s=1.0)
            return
        except QuorumNotReached:
            for party in processes:
                if party.status is not None:
                    raise QuorumNotReached(f"{party.name} did not start: {party.last_words()}") from None
            if time.monotonic() > deadline:
                raise


def _wait_for_exit(processes: list[PartyProcess]) -> None:
    deadline = time.monotonic() + LEAVE_S
    for party in processes:
        party.wait(deadline - time.monotonic())
