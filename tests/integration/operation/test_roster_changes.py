"""Parties that join and leave while a consortium is served: real enrolment, sessions and masked sums, one process."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable

import pytest
from cryptography import x509
from support.consortium import NAMES, Scene
from support.waiting import PATIENCE_S, comes_true

from collegium.clock import utc_now
from collegium.coordinator.membership.enrolment_service import RENEW_BEFORE
from collegium.coordinator.membership.members import Members
from collegium.coordinator.service.coordinator_service import CoordinatorService
from collegium.coordinator.service.session_service import SessionService
from collegium.coordinator.service.sessions import GrpcParties
from collegium.coordinator.settings.run_config import load_public
from collegium.data.values import ArraySpec
from collegium.errors import ConfigurationError, IdentityError
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.verifier import verify
from collegium.protocol.identities import Credentials, issue_kit, load_authority
from collegium.protocol.roster import Roster


def charged(scene: Scene) -> int:
    with Ledger.read(scene.folder / "consortium" / "ledger.sqlite") as ledger:
        assert ledger.queries_charged() == len(ledger.labels())
        return ledger.queries_charged()


def test_who_enrols_during_a_run_is_summed_with_the_others_from_the_next_round_on(scene: Scene) -> None:
    result = scene.serve(lambda number: scene.join("oak") if number == 1 else None)
    assert result.state == "finished" and result.labels.answered == 12
    assert [(entry.asked, entry.answered) for entry in result.rounds] == [(3, 3), (4, 4), (4, 4), (4, 4)]
    assert charged(scene) == 12
    for name in NAMES:
        scene.parties[name].thread.join(PATIENCE_S)
        assert scene.parties[name].ended == ["the run is finished"]
        assert Roster.load(scene.folder / name / "roster.json").admitted() == list(NAMES)


def test_a_newcomer_whom_the_others_do_not_name_is_left_out_and_the_run_goes_on(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """A party is summed with nobody whom its institution has not named: without it there is no round with both."""

    def change(number: int) -> None:
        if number == 1:
            for name in NAMES[:3]:
                known = scene.parties[name].known
                known.vouched -= {"oak"}
            scene.join("oak")

    result = scene.serve(change)
    assert result.state == "finished" and charged(scene) == 12
    assert [(entry.asked, entry.answered) for entry in result.rounds] == [(3, 3)] * 4
    said = [record.getMessage() for record in caplog.records if "goes on without oak" in record.getMessage()]
    assert len(said) == 1
    assert scene.parties["oak"].thread.is_alive() or scene.parties["oak"].ended == ["the run is finished"]


def test_a_finished_run_that_is_served_again_waits_for_nobody(scene: Scene) -> None:
    first = scene.serve(lambda number: None)
    public = load_public(scene.config.run, None)
    with CoordinatorService(scene.config, public, wait_s=0).listening() as serving:
        assert serving.run().labels == first.labels
    assert charged(scene) == 12


def test_who_is_revoked_during_a_run_is_cut_off_and_the_others_go_on_without_it(scene: Scene) -> None:
    def change(number: int) -> None:
        if number == 1:
            scene.join("oak")
        elif number == 3:
            scene.members.change(lambda members: (members.without("cedar"), None))
            scene.parties["cedar"].thread.join(PATIENCE_S)  # another command did it: the coordinator notices by itself

    result = scene.serve(change)
    assert result.state == "finished" and charged(scene) == 12
    ended = scene.parties["cedar"].ended
    assert len(ended) == 1 and isinstance(ended[0], IdentityError) and "no longer admitted" in str(ended[0])
    assert Roster.load(scene.folder / "ash" / "roster.json").admitted() == ["ash", "birch", "oak"]
    assert result.rounds[-1].asked == 3 and result.rounds[-1].answered == 3


def test_a_party_that_enrols_while_the_members_are_read_anew_is_admitted_at_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order is forced: what was read before the party enrolled takes effect after that, and then the party dials.

    Once the older roster then took the place of the newer one. The party was refused and gave up, and the others
    waited for it.
    """
    read, enrolled, late = threading.Event(), threading.Event(), threading.Event()
    replace = GrpcParties.replace_roster

    def in_this_order(parties: GrpcParties, newest: Callable[[], Roster]) -> None:
        if threading.current_thread().name == "members":
            read.set()
            assert enrolled.wait(PATIENCE_S)
            replace(parties, newest)
            late.set()
        else:
            replace(parties, newest)
            enrolled.set()
            assert late.wait(PATIENCE_S)

    monkeypatch.setattr(GrpcParties, "replace_roster", in_this_order)
    pool = ArraySpec("ab" * 32, "uint8", (10, 8, 8, 1))
    service = SessionService(scene.config, pool=pool, wait_s=0.0, on_event=lambda event: None)
    with service.open():
        assert read.wait(PATIENCE_S)
        scene.join("oak")
        assert service.parties.wait_for({"oak"}, timeout_s=20.0) == ["oak"]
        scene.close()


def test_the_members_of_another_consortium_are_not_served(scene: Scene) -> None:
    scene.members.change(lambda members: (Members(consortium="other"), None))
    with pytest.raises(ConfigurationError, match="is the folder of 'other'"):
        CoordinatorService(scene.config, load_public(scene.config.run, None), wait_s=0)


def test_a_certificate_that_ends_soon_is_made_anew_and_shown_while_everybody_stays_connected(scene: Scene) -> None:
    """The coordinator's own. Who enrols later is shown the new one, and the ledger is signed by the same key."""
    consortium = scene.folder / "consortium"
    shown: list[x509.Certificate] = []

    def change(number: int) -> None:
        if number != 1:
            return
        shown.append(shown_by(scene))
        authority, identity = load_authority(consortium / "authority"), consortium / "coordinator"
        issue_kit(authority, identity, "coordinator", "coordinator", hosts=["localhost"], days=5)
        assert comes_true(lambda: shown_by(scene).not_valid_after_utc - utc_now() >= RENEW_BEFORE)
        shown.append(shown_by(scene))
        scene.join("oak")

    assert scene.serve(change).state == "finished"
    before, after = shown
    assert after != before and after.public_key() == before.public_key()
    for name in NAMES:
        scene.parties[name].thread.join(PATIENCE_S)
        assert scene.parties[name].ended == ["the run is finished"]
    signed_by = Credentials.load(consortium / "coordinator", "coordinator").subject.signing_key
    assert sum(queries for _, queries in verify(consortium / "ledger.sqlite", signed_by).periods) == charged(scene)


def shown_by(scene: Scene) -> x509.Certificate:
    """The certificate that the port of the sessions shows to whoever connects now."""
    context = ssl.create_default_context(cafile=str(scene.folder / "consortium" / "authority" / "authority.pem"))
    port = int(scene.config.consortium.address.rpartition(":")[2])
    with (
        socket.create_connection(("localhost", port), PATIENCE_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        der = secured.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der)
