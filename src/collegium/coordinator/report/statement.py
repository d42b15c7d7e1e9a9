"""The statement that a board files: one page, signed with the key that signs the ledger.

What was spent, and on what, is computed from the ledger's entries alone. What no entry holds (the task, the pool, names
and certificates) stands apart from it, as the operator recorded it.
"""

import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256

from collegium.coordinator.report.page import STYLE, plain_epsilon, rendered, templates
from collegium.coordinator.run.run_folder import ledger_of, plain, read_run
from collegium.errors import ConfigurationError, IdentityError, LedgerCorrupt, StorageError
from collegium.privacy.ledger.chain import Chain, Head
from collegium.privacy.ledger.entry import Charge, names_an_input
from collegium.privacy.ledger.stated_laws import check_terms
from collegium.privacy.ledger.store import EntryStore
from collegium.privacy.ledger.verification import Verification, verify_ledger
from collegium.protocol.certificates import read_certificate, read_subject
from collegium.protocol.identities import Credentials
from collegium.protocol.rehearsals import is_rehearsal
from collegium.protocol.roster import Roster
from collegium.version import SOFTWARE
from collegium.whole_files import read_whole
from collegium_accounting.game.laws import RenyiLaw, VectorLaw

CHANGES = {
    ("record", "add-remove"): "one {record} was added or removed; to replace one is both, and costs more",
    ("record", "replace"): "the votes that hang on one {record} were others",
    ("party", "add-remove"): "one whole institution took part or did not",
    ("party", "replace"): "all records of one institution were others",
}
"""What may differ between two neighbouring data sets, by unit and adjacency."""

FORMAT = 1
_PURPOSE = b"collegium statement v1\0"
_SLACK = 0.01
"""Relative: two machines may divide the positions of a game differently, as in the ledger's own budget."""
_SIGNED = re.compile(r'<pre id="signed">(.*?)</pre>', re.DOTALL)


def facts_of(run: Path, made_utc: str) -> dict[str, Any]:
    """What a statement on the run in the folder ``run`` says; JSON's own types. The ledger is verified first.

    Parameters
    ----------
    made_utc : when the statement is made, ISO 8601.

    Raises
    ------
    LedgerCorrupt
        If the ledger does not hold.
    StorageError
        If there is no ledger or no run.json.
    """
    if is_rehearsal(read_run(run).name):
        raise ConfigurationError(f"{run} is a rehearsal on invented records: there is nothing to state of anybody's")
    ledger = ledger_of(run)
    held = verify_ledger(ledger)
    spent = spent_of(ledger, None, held.found.heads)
    recorded = _recorded(run, ledger.parent, held)
    facts = {
        "format": FORMAT,
        "software": SOFTWARE,
        "made_utc": made_utc,
        "ledger": spent,
        "recorded": recorded,
        "words": words_of(spent, recorded),
    }
    read: dict[str, Any] = plain(facts)
    return read


def statement_of(run: Path, made_utc: str) -> dict[str, Any]:
    """`facts_of` a run, signed; a ledger without signatures (a simulation's) gives a statement without one.

    Raises
    ------
    IdentityError
        If the ledger is signed and the key that signs it is not in the folder ``coordinator`` beside it.
    """
    facts = facts_of(run, made_utc)
    if not (key := facts["ledger"]["public_key"]):
        return {"facts": facts, "signature": None}
    return {"facts": facts, "signature": _signer(ledger_of(run).parent, key).sign(_digest(facts)).hex()}


def render(statement: Mapping[str, Any]) -> str:
    """The page of a statement, which holds the signed text as well."""
    facts = statement["facts"]
    return rendered(
        "coordinator.report",
        "statement.html.j2",
        style=STYLE,
        signed=json.dumps(statement, sort_keys=True, ensure_ascii=False, indent=1),
        ledger=facts["ledger"],
        recorded=facts["recorded"],
        words=facts["words"],
        made=facts["made_utc"],
        software=facts["software"],
        signature=statement["signature"],
        changes={key: text.format(record=facts["recorded"]["record_is"]) for key, text in CHANGES.items()},
    )


def check_statement(run: Path, file: Path, key: bytes | None = None) -> Mapping[str, Any]:
    """Verify the ledger of ``run`` and the statement in ``file``, page or JSON; the statement.

    Parameters
    ----------
    key : 32 bytes, the coordinator's; None where it is not known, so that the key is the one that the ledger states.

    Raises
    ------
    LedgerCorrupt
        If the ledger does not hold, or the statement is not what it says.
    StorageError
        If the file is no statement.
    """
    text = read_whole(file).decode(errors="replace")
    statement, page = _read(file, text)
    facts, ledger = statement["facts"], ledger_of(run)
    head = Head.parse(str(facts["ledger"]["head"]))
    held = verify_ledger(ledger, key, head)
    spent = plain(spent_of(ledger, head, held.found.heads))
    if spent["public_key"]:
        _check_signature(statement, spent["public_key"])
    elif statement["signature"] is not None:
        raise LedgerCorrupt("the statement is signed, and the ledger is not: it is of another one")
    differing = [name for name in spent if name != "promises" and spent[name] != facts["ledger"].get(name)]
    if differing or not _covered(spent["promises"], facts["ledger"].get("promises")):
        raise LedgerCorrupt(f"the statement does not say of {', '.join(differing) or 'ε'} what the ledger does")
    if facts["words"] != plain(words_of(facts["ledger"], facts["recorded"])) or (page and text != render(statement)):
        made = facts["software"]
        if made != SOFTWARE:
            raise ConfigurationError(f"the figures agree; the words are of {made}: check them with that version")
        raise LedgerCorrupt("the words of the statement were changed: the ledger bears out its figures alone")
    return statement


def spent_of(path: Path, head: Head | None = None, signed: Sequence[str] = ()) -> dict[str, Any]:
    """What the entries of the ledger at ``path`` say, up to ``head`` or to the last.

    ``signed`` : heads whose signatures were checked already.
    """
    with closing(EntryStore.read(path)) as store:
        rows = store.rows()
    chain, times = Chain(signed), list[str]()
    for row in rows[: None if head is None else head.seq + 1]:
        entry = chain.absorb(row)
        if isinstance(entry.content, Charge):
            times.append(entry.time_utc)
    chain.settle()
    charged: dict[str, dict[str, Any]] = {}
    for terms, rounds in chain.periods:
        if rounds:
            check_terms(terms)
        for purpose, number in rounds.items():
            one = _charge(purpose, terms)
            charged.setdefault(json.dumps(one, sort_keys=True), one | {"rounds": 0})["rounds"] += number
    promises = [
        {"unit": unit, "adjacency": adjacency, "epsilon": epsilon, "means": plain_epsilon(epsilon)}
        for unit, adjacency in chain.units()
        if times
        for epsilon in [chain.epsilon((unit, adjacency))]
    ]
    used = [terms for terms, rounds in chain.periods if rounds]
    return {
        "name": chain.settings.name,
        "delta": chain.settings.delta,
        "public_key": chain.settings.public_key.hex(),
        "first_entry": chain.first.hex(),
        "head": str(chain.head),
        "since_utc": times[0] if times else None,
        "until_utc": times[-1] if times else None,
        "promises": promises,
        "charged": list(charged.values()),
        "labels": sum(map(names_an_input, chain.labels)),
        "noise": sorted({terms.noise for terms in used}),
        "honest_survivors": min((terms.honest_survivors for terms in used if terms.noise == "parties"), default=0),
        "adjacencies": sorted({terms.adjacency for terms in used}),
        "adaptive": chain.spending.adaptive,
        "values": chain.spending.values,
        "budget": {"unit": chain.terms.unit, "epsilon": chain.terms.epsilon_budget},
        "sources": sorted({terms.source for terms in used if terms.source}),
    }


def _charge(purpose: str, terms: Any) -> dict[str, Any]:
    """What one round of a block releases."""
    block = terms.blocks[purpose]
    if not block.laws:
        return {"purpose": purpose, "releases": "nothing more", "mechanism": None, "parameters": {}}
    law, step = block.laws[terms.unit], block.step
    releases = {VectorLaw: "a noisy vector", RenyiLaw: "an answer"}.get(type(law), "the winner of noisy counts")
    return {
        "purpose": purpose,
        "releases": releases,
        "mechanism": None if step is None else step.mechanism,
        "parameters": {} if step is None else dict(step.parameters),
    }


def _recorded(run: Path, home: Path, held: Verification) -> dict[str, Any]:
    """What no entry holds: the task, the pool, the parties with their keys and certificates."""
    record = read_run(run)
    roster = Roster.load(home / "roster.json") if (home / "roster.json").exists() else None
    certificates = {} if roster is None else {name: entry.certificate_pem for name, entry in roster.parties.items()}
    modes = {
        agreed["mode"]
        for witness in held.witnesses.values()
        for agreed in json.loads(witness.agreed)
        if agreed["ledger"] == held.found.heads[0].partition(":")[2][:32]
    }
    parties = []
    for name in sorted(record.parties.keys() | held.witnesses.keys()):
        signed, pem = held.witnesses.get(name), certificates.get(name)
        parties.append(
            {
                "name": name,
                "signing_key": None if signed is None else signed.key.hex(),
                "followed_to": None if signed is None else int(signed.head.partition(":")[0]),
                "certificate_sha256": pem and read_subject(read_certificate(pem.encode())).fingerprint,
            }
        )
    return {
        "run": record.name,
        "state": record.state,
        "classes": list(record.config.task.classes),
        "inputs": record.config.task.inputs.kind,
        "record_is": record.record_is,
        "sum_modes": sorted(modes) or [record.sum_mode],
        "pool": {"inputs": record.pool.inputs, "sha256": record.pool.sha256, "drawn": record.config.drawn},
        "parties": parties,
        "certificates": _certificates(home / "coordinator"),
        "software": record.versions,
    }


def _certificates(folder: Path) -> dict[str, str | None]:
    """SHA-256 of the certificates of coordinator and authority, None where they are not there."""
    files = {name: folder / f"{name}.pem" for name in ("certificate", "authority")}
    return {
        name: read_certificate(read_whole(file)).fingerprint(SHA256()).hex() if file.exists() else None
        for name, file in files.items()
    }


def words_of(spent: Mapping[str, Any], recorded: Mapping[str, Any]) -> dict[str, Any]:
    """The sentences of statement_words.txt.j2: one text each, and a list of what ε does not cover."""
    words: Any = templates("coordinator.report").get_template("statement_words.txt.j2")
    module = words.make_module({"spent": spent, "recorded": recorded})
    names = ("who_adds_the_noise", "who_could_collude", "not_protected", "delta")
    lines = {name: str(getattr(module, name)()).splitlines() for name in names}
    return {name: told if name == "not_protected" else " ".join(told) for name, told in lines.items()}


def _signer(home: Path, public_key: str) -> Ed25519PrivateKey:
    credentials = Credentials.load(home / "coordinator", "coordinator", expired=True)
    if credentials.subject.signing_key.hex() != public_key:
        raise IdentityError(f"the key in {home / 'coordinator'} is not the one that signs {home}'s ledger: restore it")
    return credentials.signing_key


def _digest(facts: Mapping[str, Any]) -> bytes:
    canonical = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return _PURPOSE + hashlib.sha256(canonical.encode()).digest()


def _read(file: Path, text: str) -> tuple[dict[str, Any], bool]:
    """A statement, and whether the file is its page."""
    found = _SIGNED.findall(text)
    try:
        statement = json.loads(html.unescape(found[0]) if found else text)
        if statement["facts"]["format"] == FORMAT and statement.keys() == {"facts", "signature"}:
            return statement, bool(found)
    except (ValueError, TypeError, KeyError):
        pass
    raise StorageError(f"{file} holds no statement of this version: make one with collegium statement RUN")


def _check_signature(statement: Mapping[str, Any], public_key: str) -> None:
    try:
        signature = bytes.fromhex(statement["signature"])
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key)).verify(signature, _digest(statement["facts"]))
    except (InvalidSignature, ValueError, TypeError):
        raise LedgerCorrupt("the statement is not signed with the ledger's key: it was changed or forged") from None


def _covered(computed: Sequence[Mapping[str, Any]], stated: Any) -> bool:
    """Whether the same units are named, and none with a smaller ε."""
    if not isinstance(stated, list) or len(stated) != len(computed):
        return False
    return all(
        (one["unit"], one["adjacency"]) == (said["unit"], said["adjacency"])
        and float(said["epsilon"]) >= float(one["epsilon"]) * (1.0 - _SLACK)
        for one, said in zip(computed, stated, strict=True)
    )
