"""Parties and coordinator over real sockets on this machine: delivery, cuts, deadlines, farewells."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from support.sessions import (
    NAMES,
    TASK,
    BackgroundQuestion,
    Cable,
    Echo,
    Hub,
    Kits,
    Listen,
    RawParty,
    Serve,
)
from support.waiting import PATIENCE_S

from collegium.coordinator.rounds.readiness import send_pool
from collegium.coordinator.service import sessions
from collegium.coordinator.service.outstanding import Waiting
from collegium.coordinator.service.sessions import SessionLimits
from collegium.data import PoolStore, array_spec
from collegium.data.task import Task
from collegium.data.values import PoolChunk, PoolState
from collegium.errors import ConfigurationError, DataError, IdentityError, QuorumNotReached, StorageError
from collegium.parties.session import PartySession
from collegium.protocol.messages import Reply, Request
from collegium.protocol.replies import Description, Failure
from collegium.protocol.requests import Describe, HoldPool
from collegium.protocol.v1 import collegium_pb2 as pb


def described(name: str) -> Description:
    return Description(name, "echo", 1, "none")


def test_parties_connect_answer_and_leave_at_the_farewell(kits: Kits, hub: Hub, serve: Serve) -> None:
    servings = [serve(kits.parties[name], hub.address) for name in NAMES]
    assert hub.parties.wait_for(NAMES, timeout_s=PATIENCE_S) == list(NAMES)
    callers: set[int] = set()
    heard: list[str] = []

    def on_reply(name: str, _: object) -> None:
        callers.add(threading.get_ident())
        heard.append(name)

    replies = hub.parties.ask(dict.fromkeys(NAMES, Describe()), timeout_s=PATIENCE_S, on_reply=on_reply)
    assert replies == {name: described(name) for name in NAMES}
    assert sorted(heard) == list(NAMES)
    assert callers == {threading.get_ident()}
    hub.parties.farewell("all labels are issued")
    assert [serving.ended() for serving in servings] == ["all labels are issued"] * 3
    assert hub.parties.names() == []


def test_what_is_made_of_a_reply_is_held_in_its_place(kits: Kits, hub: Hub, serve: Serve) -> None:
    """A thousand masked vectors would else lie in memory until the last has come."""
    for name in NAMES:
        serve(kits.parties[name], hub.address)
    hub.parties.wait_for(NAMES, timeout_s=PATIENCE_S)
    small = Failure("added", "up")
    replies = hub.parties.ask(
        dict.fromkeys(NAMES, Describe()),
        timeout_s=PATIENCE_S,
        on_reply=lambda name, reply: small if name == "ash" else None,
    )
    assert replies == {name: small if name == "ash" else described(name) for name in NAMES}


def test_an_answer_that_the_end_of_the_sessions_cut_off_is_a_failure(kits: Kits, hub: Hub, serve: Serve) -> None:
    serve(kits.parties["birch"], hub.address)
    hub.parties.wait_for(["birch"], timeout_s=PATIENCE_S)
    waited = dict.fromkeys(("ash", "birch"), Describe())
    for timeout_s in (1.0, PATIENCE_S):  # a machine that is busy is given longer
        replies = hub.parties.ask(waited, timeout_s=timeout_s, on_reply=lambda *_: hub.parties.close())
        if replies["birch"] == described("birch"):
            break
    assert replies["birch"] == described("birch") and isinstance(replies["ash"], Failure)


def test_a_party_that_comes_after_the_farewell_is_told_too(kits: Kits, hub: Hub, serve: Serve) -> None:
    hub.parties.farewell("over")
    assert serve(kits.parties["ash"], hub.address).ended() == "over"


def test_a_request_outlives_a_cut(kits: Kits, hub: Hub, cable: Cable, serve: Serve) -> None:
    begun, release = threading.Event(), threading.Event()

    def meanwhile(_: Request) -> None:
        begun.set()
        assert release.wait(PATIENCE_S)

    party = Echo("ash", meanwhile)
    serve(kits.parties["ash"], cable.address, party)
    hub.parties.wait_for(["ash"], timeout_s=PATIENCE_S)
    asking = BackgroundQuestion(hub, ("ash",))
    assert begun.wait(PATIENCE_S)
    cable.cut()
    cable.plug()
    hub.log.wait_for("connected", 2)
    release.set()
    assert asking.result() == {"ash": described("ash")}
    assert len(set(party.seen)) == 1


def test_a_request_that_a_cut_left_unanswered_is_asked_again_under_its_id(kits: Kits, hub: Hub, serve: Serve) -> None:
    with RawParty(kits.parties["ash"], hub.address) as raw:
        raw.hello("ash")
        assert raw.receive().WhichOneof("body") == "welcome"
        hub.parties.wait_for(["ash"], timeout_s=PATIENCE_S)
        asking = BackgroundQuestion(hub, ("ash",))
        request_id = raw.receive().request.request_id
    party = Echo("ash")
    serve(kits.parties["ash"], hub.address, party)
    assert asking.result() == {"ash": described("ash")}
    assert party.seen == [request_id]


def test_parties_come_back_to_a_coordinator_that_was_started_again(kits: Kits, listen: Listen, serve: Serve) -> None:
    first = listen()
    serve(kits.parties["ash"], first.address)
    first.parties.wait_for(["ash"], timeout_s=PATIENCE_S)
    first.parties.close()
    second = listen(f"127.0.0.1:{first.port}")
    assert second.parties.wait_for(["ash"], timeout_s=PATIENCE_S) == ["ash"]
    assert second.parties.ask({"ash": Describe()}, timeout_s=PATIENCE_S) == {"ash": described("ash")}


def test_a_stalled_party_is_not_waited_for_beyond_the_deadline(kits: Kits, hub: Hub, serve: Serve) -> None:
    release = threading.Event()
    stalled = Echo("birch", lambda request: assert_true(release.wait(PATIENCE_S)))
    serve(kits.parties["ash"], hub.address)
    serve(kits.parties["birch"], hub.address, stalled)
    hub.parties.wait_for(["ash", "birch"], timeout_s=PATIENCE_S)
    for deadline_s in (0.5, 5.0, 50.0):  # a machine that is busy is given longer
        replies = hub.parties.ask(dict.fromkeys(("ash", "birch"), Describe()), timeout_s=deadline_s)
        assert isinstance(replies["birch"], Failure) and replies["birch"].code == "deadline"
        if replies["ash"] == described("ash"):
            break
    else:
        raise AssertionError(replies["ash"])
    release.set()
    assert hub.parties.ask({"birch": Describe()}, timeout_s=PATIENCE_S) == {"birch": described("birch")}


def test_the_time_until_which_answers_are_waited_for_is_the_last_of_those_that_did_not_answer() -> None:
    generator = np.random.default_rng(0)
    names = [f"party-{number}" for number in range(50)]
    waiting = Waiting(names, 10.0)
    ends_s = dict.fromkeys(names, 10.0)
    while ends_s:
        name = str(generator.choice(list(ends_s)))
        if generator.random() < 0.5:
            ends_s[name] = min(ends_s[name] + float(generator.random()), 12.0)
            waiting.put_off(name, ends_s[name])
        else:
            del ends_s[name]
            waiting.answered(name)
        assert waiting.ends_s == ends_s
        assert not ends_s or waiting.last_s() == max(ends_s.values())


def assert_true(value: bool) -> None:
    assert value


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_party_that_computes_is_waited_for_beyond_the_deadline_but_not_for_ever(
    kits: Kits, hub: Hub, monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    """It says so twenty times a deadline, and answers after three deadlines or never."""
    monkeypatch.setattr(sessions, "MOST_TIMEOUTS", 5)
    wanted = described("ash") if goes_on else Failure("deadline", "no answer in time")
    for limit_s in (0.5, 5.0, 50.0):  # a machine that is busy is given longer
        with RawParty(kits.parties["ash"], hub.address) as raw:
            raw.hello("ash")
            raw.receive()
            hub.parties.wait_for(["ash"], timeout_s=PATIENCE_S)
            asking, began = BackgroundQuestion(hub, ("ash",), timeout_s=limit_s), time.monotonic()
            asked = raw.receive().request
            note = pb.FromParty(computing=pb.Computing(request_id=asked.request_id)).SerializeToString()
            while asking.thread.is_alive() and not (goes_on and time.monotonic() > began + 3 * limit_s):
                raw.send(note)
                asking.thread.join(limit_s / 20)
            if goes_on:
                raw.send(pb.FromParty(reply=Reply(asked.request_id, wanted).to_proto()).SerializeToString())
            reply = asking.result()["ash"]
            assert isinstance(reply, type(wanted)) or limit_s < 50.0
            if isinstance(reply, type(wanted)) and (goes_on or time.monotonic() - began >= 5 * limit_s):
                break
    else:
        raise AssertionError(reply)


def test_a_party_that_is_gone_is_given_up_before_the_deadline(kits: Kits, listen: Listen, serve: Serve) -> None:
    hub = listen(limits=SessionLimits(reconnect_grace_s=0.05))
    begun = threading.Event()
    hold = threading.Event()

    def meanwhile(_: Request) -> None:
        begun.set()
        hold.wait(PATIENCE_S)

    serving = serve(kits.parties["ash"], hub.address, Echo("ash", meanwhile))
    hub.parties.wait_for(["ash"], timeout_s=PATIENCE_S)
    asking = BackgroundQuestion(hub, ("ash", "cedar"), timeout_s=600)
    assert begun.wait(PATIENCE_S)
    serving.session.stop()
    replies = asking.result()
    hold.set()
    assert {name: reply.code for name, reply in replies.items() if isinstance(reply, Failure)} == {
        "ash": "unreachable",
        "cedar": "unreachable",
    }


def test_a_session_with_copied_keys_does_not_end_the_honest_party_for_good(kits: Kits, hub: Hub, serve: Serve) -> None:
    honest = Echo("ash")
    serve(kits.parties["ash"], hub.address, honest)
    hub.parties.wait_for(["ash"], timeout_s=PATIENCE_S)
    thief = serve(kits.parties["ash"], hub.address, Echo("ash"))
    assert "another process" in hub.log.wait_for("disconnected").detail
    thief.session.stop()
    hub.parties.wait_for(["ash"], timeout_s=PATIENCE_S)
    assert hub.parties.ask({"ash": Describe()}, timeout_s=PATIENCE_S) == {"ash": described("ash")}
    assert len(honest.seen) == 1


def test_a_party_struck_off_the_roster_is_cut_off_and_stays_out(kits: Kits, hub: Hub, serve: Serve) -> None:
    serving = serve(kits.parties["ash"], hub.address)
    hub.parties.wait_for(["ash"], timeout_s=PATIENCE_S)
    parties = dict(kits.roster.parties)
    parties["ash"] = parties["ash"].model_copy(update={"admitted": False})
    hub.parties.replace_roster(lambda: kits.roster.model_copy(update={"parties": parties}))
    ended = serving.ended()
    assert isinstance(ended, IdentityError) and "no longer admitted" in str(ended)
    assert hub.parties.names() == []
    again = serve(kits.parties["ash"], hub.address).ended()
    assert isinstance(again, IdentityError)
    (reply,) = hub.parties.ask({"ash": Describe()}, timeout_s=PATIENCE_S).values()
    assert reply == Failure("unreachable", "it is no longer admitted"), "nobody waits for it to come back"


def test_an_answer_that_breaks_the_protocol_fails_its_request_alone(kits: Kits, hub: Hub, serve: Serve) -> None:
    serve(kits.parties["ash"], hub.address)
    with RawParty(kits.parties["birch"], hub.address) as birch:
        birch.hello("birch")
        assert birch.receive().WhichOneof("body") == "welcome"
        hub.parties.wait_for(["ash", "birch"], timeout_s=PATIENCE_S)
        asking = BackgroundQuestion(hub, ("ash", "birch"))
        request_id = birch.receive().request.request_id
        counts = pb.Counts(rows=2, entries=2, entry_bytes=2, counts=b"\x01\x00")
        birch.send(pb.FromParty(reply=pb.Reply(request_id=request_id, counts=counts)).SerializeToString())
        replies = asking.result()
        assert replies["ash"] == described("ash")
        assert isinstance(replies["birch"], Failure) and replies["birch"].code == "protocol"
        assert hub.log.wait_for("violation").party == "birch"
        assert hub.parties.names() == ["ash", "birch"]


def test_waiting_for_parties_names_the_missing(kits: Kits, hub: Hub, serve: Serve) -> None:
    serve(kits.parties["ash"], hub.address)
    hub.parties.wait_for(["ash"], timeout_s=PATIENCE_S)
    with pytest.raises(QuorumNotReached, match="birch, cedar"):
        hub.parties.wait_for(NAMES, timeout_s=0.01)


def test_a_party_whose_data_do_not_fit_ends_with_that_error(kits: Kits, hub: Hub) -> None:
    def open_party(_: Task) -> Echo:
        raise DataError("clinic.csv has no column 'label'")

    session = PartySession(open_party, lambda: kits.parties["ash"], hub.address)
    with pytest.raises(DataError, match="no column"):
        session.run()
    hub.log.wait_for("disconnected")


def test_a_party_does_not_serve_another_task_on_the_same_teachers(kits: Kits, listen: Listen, serve: Serve) -> None:
    first = listen()
    serving = serve(kits.parties["ash"], first.address)
    first.parties.wait_for(["ash"], timeout_s=PATIENCE_S)
    first.parties.close()
    listen(f"127.0.0.1:{first.port}", task=TASK.model_copy(update={"classes": ("a", "b", "c")}))
    assert isinstance(serving.ended(), ConfigurationError)


def test_a_port_in_use_is_said_plainly(hub: Hub, listen: Listen) -> None:
    with pytest.raises(StorageError, match="in use"):
        listen(f"127.0.0.1:{hub.port}")


class PoolHolder(Echo):
    """Keeps a pool; counts the pieces that it was sent."""

    def __init__(self, name: str, store: PoolStore) -> None:
        super().__init__(name)
        self.store, self.pieces = store, 0

    def handle(self, request: Request) -> Reply:
        if isinstance(request.body, PoolChunk):
            self.pieces += 1
            return Reply(request.request_id, self.store.accept(request.body))
        assert isinstance(request.body, HoldPool)
        return Reply(request.request_id, self.store.state(request.body.pool))


def test_the_pool_goes_once_and_only_to_those_who_lack_it(kits: Kits, hub: Hub, serve: Serve) -> None:
    pool = np.random.default_rng(0).integers(0, 256, size=(3000, 32, 32), dtype=np.uint8)
    spec = array_spec(pool)
    holders = {name: PoolHolder(name, PoolStore(None)) for name in NAMES}
    holders["ash"].store.put(pool)
    holders["birch"].store.accept(PoolChunk(spec, 0, pool.tobytes()[: 1024 * 1024]))
    for name in NAMES:
        serve(kits.parties[name], hub.address, holders[name])
    hub.parties.wait_for(NAMES, timeout_s=PATIENCE_S)
    held = PoolState(spec.sha256, spec.size_bytes, complete=True)
    sent = send_pool(hub.parties, NAMES, pool, spec, timeout_s=PATIENCE_S)
    assert sent == dict.fromkeys(NAMES, held)
    assert {name: holder.pieces for name, holder in holders.items()} == {"ash": 0, "birch": 2, "cedar": 3}
    assert send_pool(hub.parties, NAMES, pool, spec, timeout_s=PATIENCE_S) == sent
    assert holders["cedar"].pieces == 3
    np.testing.assert_array_equal(holders["cedar"].store.open(spec.sha256), pool)
