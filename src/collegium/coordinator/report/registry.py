"""A run as a record of the deployments registry that OpenDP keeps: its strictest tier, from ledger and run alone.

The form is that of the registry's schema (opendp/deployments-registry-data). What neither ledger nor run knows is said
to be unknown.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from collegium.coordinator.report.statement_words import CHANGES
from collegium.errors import ConfigurationError
from collegium_accounting.terminal import epsilon_text

_SEEN = {
    "clear": "It sees the answers of every institution, and is trusted to keep them to itself.",
    "masked": "It sees exact sums over all institutions, never the answers of one, and is trusted with these sums.",
    "masked+noised": "It sees sums that are noisy already, and is not trusted with the noise.",
}


def registry_record(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a statement's facts, in JSON's own types; ConfigurationError where nothing private was released."""
    spent = facts["ledger"]
    if not spent["promises"] or "seeded" in spent["noise"] or spent["promises"][0]["epsilon"] == "inf":
        raise ConfigurationError("there is no private release to register: nothing was charged, or nothing is promised")
    return {
        "url_slug": re.sub(r"[^a-z0-9]+", "-", f"{facts['recorded']['run']}-{_day(facts)}".lower()).strip("-"),
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": _basic(facts),
            "dp_variant": _variant(facts),
            "privacy_loss": _loss(facts),
            "deployment_model": _model(facts),
            "accounting": _accounting(facts),
            "implementation": _implementation(facts),
            "administrative": _administrative(facts),
        },
    }


def _basic(facts: Mapping[str, Any]) -> dict[str, Any]:
    spent, recorded = facts["ledger"], facts["recorded"]
    institutions = ", ".join(party["name"] for party in recorded["parties"])
    return {
        "name": f"{recorded['run']} of the consortium {spent['name']}",
        "data_curators": [f"Consortium {spent['name']}: {institutions}"],
        "description": f"A classifier of {recorded['inputs']} inputs into {len(recorded['classes'])} classes, and "
        f"{spent['labels']} labels of public inputs from which it learned. Institutions that keep their records "
        "answered questions about public inputs, or summed public features of their records; only sums with "
        "noise, or labels that follow from them, were released.",
        "intended_use": f"To classify new inputs into: {', '.join(recorded['classes'])}. The run does not record "
        "what the classifier is used for.",
        "data_product_type": "Machine learning model",
        "data_product_region": "Not recorded by the run: that of the institutions named as curators.",
        "publication_date": _day(facts),
    }


def _variant(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "variant_name": "Approximate DP",
        "data_domain": f"For each institution any set of records of the public schema ({facts['recorded']['inputs']} "
        "inputs, and the classes above): ranges, categories and classes are fixed before records are read, and "
        "values beyond them are clipped.",
        "unprotected_quantities": _listed(facts["words"]["not_protected"]),
    }


def _loss(facts: Mapping[str, Any]) -> dict[str, Any]:
    spent, record = facts["ledger"], facts["recorded"]["record_is"]
    promise, *others = spent["promises"]

    def change(one: Mapping[str, Any]) -> str:
        return CHANGES[one["unit"], one["adjacency"]].format(record=record)

    whose = {"record": f"One {record} of one institution", "party": "One institution with all of its records"}
    told = [f"ε = {epsilon_text(float(one['epsilon']))} where {change(one)}" for one in others]
    return {
        "privacy_unit": whose[promise["unit"]],
        "privacy_unit_details": f"Neighbouring data sets ({promise['adjacency']}) are two of the same consortium "
        f"between which {change(promise)}. "
        + (
            "A person may have several rows, and is protected less than a row: no more is promised for a person."
            if record == "row"
            else "Every institution said that one record is one person."
        ),
        "privacy_parameters": {
            "epsilon": float(epsilon_text(float(promise["epsilon"]))),
            "delta": spent["delta"],
        },
        "privacy_parameters_details": " ".join(
            [
                f"ε is rounded up to four digits. {promise['means']} {facts['words']['delta']}",
                *([f"The same releases have {'; '.join(told)}."] if told else []),
                f"The budget that the ledger enforces is ε = {spent['budget']['epsilon']} for one "
                f"{spent['budget']['unit']}.",
            ]
        ),
    }


def _model(facts: Mapping[str, Any]) -> dict[str, Any]:
    recorded, words = facts["recorded"], facts["words"]
    seen = " ".join(_SEEN[mode] for mode in recorded["sum_modes"])
    return {
        "model_name": "Federated",
        "model_name_details": seen,
        "actors": _listed(
            [
                f"Institutions ({len(recorded['parties'])}): each keeps its records, refuses what its own policy "
                "does not allow, and counts by itself what it answered. None is trusted with the records of "
                "another; one that lies about its records costs accuracy and no privacy of others.",
                f"Coordinator: asks, sums and publishes. {seen}",
                f"Noise: {words['who_adds_the_noise']}",
                f"Collusion: {words['who_could_collude']}",
                "Network: hostile; sessions are mutual TLS 1.3 with certificates of the consortium.",
                "Everybody else: may see all that was published, now and later, and know all but one record. "
                "The guarantee is against them.",
            ]
        ),
        "release_type": "One release",
        "release_type_details": "Labels and classifier are published once. One ledger accounts for these records "
        f"over all studies of the consortium: this record covers it up to {_entry(facts)}. Nothing is reset with time; "
        "a later study is charged to the same ledger, which refuses what would pass its budget.",
        "data_source_type": "Static",
        "data_source_type_details": "An institution answers from the records that it holds then. A record that "
        "comes later is in later studies alone; what was answered is not answered again with other records.",
        "access_type": "Non-interactive",
        "access_type_details": "Nobody outside asks questions. The coordinator asks what was stated to the "
        "ledger, and each institution's policy limits mechanisms, noise, number of questions and ε.",
    }


def _accounting(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "post_processing": "Labels are chosen from noisy sums, and the classifier learns from labels, noisy sums "
        "and public inputs alone. None of it reads a record.",
        "composition": _listed(
            [
                *_charges(facts["ledger"]["charged"]),
                "All of this adds up to the ε above. Rounds of one kind that are asked adaptively are accounted "
                "for by an exact accountant that rounds up; Gaussian vectors by the exact curve of their sum; "
                "kinds that were chosen after other answers had been seen add up ε by ε, each at its share of δ.",
                "A charge is durable before anything is released, and nothing is refunded.",
            ]
        ),
    }


def _implementation(facts: Mapping[str, Any]) -> dict[str, Any]:
    software = ", ".join(f"{name} {version}" for name, version in facts["recorded"]["software"].items())
    return {
        "preprocessing_and_hyperparameter_tuning": "Settings are public, and no program of ours chooses them from "
        "records. Whatever was asked of records to choose between settings or to measure the result is charged in the "
        "same ledger, and listed under composition. What an institution looked at in its own records, without telling "
        "anybody, is not known to the ledger.",
        "mechanisms": _listed(
            [
                *(f"Source of the analysis: {source}." for source in facts["ledger"]["sources"]),
                f"Software: {facts['software']}, with {software}.",
                "Floating point: sums and masks are whole numbers. Noise is drawn exactly, from the operating system's "
                "randomness; no sampler that works in floating point is on the path of a release. What is lost by "
                "rounding in the computation of ε is counted upwards.",
                "Timing: no question comes from outside, refusals have constant texts that depend on no record, "
                "and the length of a message depends on public facts. How long an institution's own machine "
                "computes is not hidden.",
                "Platform: records and keys stay on the institution's machine; secrets of a sum are erased from "
                "its disk once the sum is opened. Side channels of the processor are not defended against.",
                "Security: each institution dials out, and opens no port; keys never leave their machine; the "
                "ledger is a signed chain of hashes, which institutions follow and sign.",
            ]
        ),
        "justification": "Budget, unit, mechanism and noise are entries of the ledger, signed before anything was "
        "charged under them; the run does not record why this budget was chosen. Anybody can verify the process: two "
        "programs that share no code compute ε from the entries, and the signatures of the "
        f"institutions show which ledger they followed, with {_entry(facts)}.",
    }


def _administrative(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "sources": "The run's signed statement and ledger: collegium statement RUN --verify statement.html. "
        f"Ledger: {_entry(facts)}, signed with the Ed25519 key {facts['ledger']['public_key'] or 'none'}.",
        "notes": "Written from the ledger by a command. Only what people deployed belongs in the registry: "
        "leave out trials on invented or public records.",
        "registry_authors": [f"Coordinator of the consortium {facts['ledger']['name']}, by {facts['software']}"],
    }


def as_yaml(value: Any, indent: str = "") -> str:
    """A mapping of JSON's own types as YAML; texts of several lines as blocks."""
    lines = []
    for name, held in value.items():
        if isinstance(held, Mapping):
            lines.append(f"{indent}{name}:\n{as_yaml(held, indent + '  ')}")
        elif isinstance(held, list):
            lines.append(f"{indent}{name}:\n" + "".join(f"{indent}  - {_scalar(one)}\n" for one in held))
        elif isinstance(held, str) and "\n" in held and held.replace("\n", "").isprintable():
            lines.append(f"{indent}{name}: |\n" + "".join(f"{indent}  {line}\n" for line in held.splitlines()))
        else:
            lines.append(f"{indent}{name}: {_scalar(held)}\n")
    return "".join(lines)


def _scalar(value: Any) -> str:
    """As JSON has it, which YAML reads alike; a float keeps its point, without which YAML reads 1e-05 as a text."""
    if isinstance(value, float) and "e" in (text := repr(value)) and "." not in text:
        return text.replace("e", ".0e")
    return json.dumps(value, ensure_ascii=not str(value).isprintable())


def _listed(lines: list[str]) -> str:
    return "".join(f"- {line}\n" for line in lines)


def _charges(charged: list[dict[str, Any]]) -> list[str]:
    told = []
    for one in charged:
        given = ", ".join(f"{name} {value}" for name, value in one["parameters"].items())
        by = f" by {one['mechanism']} ({given})" if one["mechanism"] else ""
        cost = ", at no further cost" if one["releases"] == "nothing more" else f": each {one['releases']}{by}"
        told.append(f"{one['rounds']} × {one['purpose']}{cost}.")
    return told


def _entry(facts: Mapping[str, Any]) -> str:
    return f"entry {facts['ledger']['head']} of the ledger"


def _day(facts: Mapping[str, Any]) -> str:
    """When the last charge was made, YYYY-MM-DD."""
    return str(facts["ledger"]["until_utc"][:10])
