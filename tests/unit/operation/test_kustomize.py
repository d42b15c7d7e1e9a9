"""deploy/kubernetes: what kubectl renders of it is valid for Kubernetes, fits together, and is read by our commands."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator
from support.pages import ROOT, blocks_of, text_of_page

import collegium
from collegium.coordinator.settings.consortium import read_consortium

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl, which renders, is not installed")
BASES = ROOT / "deploy" / "kubernetes"
SCHEMA = json.loads((ROOT / "tests/unit/release/schemas/kubernetes-1.37.json").read_text(encoding="utf-8"))
SIDES = ("coordinator", "party")


def rendered(folder: Path) -> list[dict[str, Any]]:
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return list(yaml.safe_load_all(done.stdout))


@pytest.fixture(scope="module")
def objects() -> dict[str, list[dict[str, Any]]]:
    return {side: rendered(BASES / side) for side in SIDES}


def faults(one: dict[str, Any]) -> list[str]:
    """What Kubernetes 1.37 would refuse in an object."""
    if one["kind"] not in SCHEMA["kinds"]:
        return [f"no schema of {one['kind']}"]
    schema = SCHEMA["kinds"][one["kind"]] | {"definitions": SCHEMA["definitions"]}
    return [f"{'.'.join(map(str, fault.path))}: {fault.message}" for fault in Draft7Validator(schema).iter_errors(one)]


def of_kind(rendering: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [one for one in rendering if one["kind"] == kind]


def for_parties(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """The service by which institutions reach a coordinator; the page has one of its own."""
    (service,) = [one for one in of_kind(objects, "Service") if one["spec"]["type"] == "LoadBalancer"]
    return service


def unfit(rendering: list[dict[str, Any]]) -> Iterator[str]:
    """Names that lead nowhere, within what was rendered together."""
    (workload,) = of_kind(rendering, "StatefulSet")
    pod = workload["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    there = {(one["kind"], one["metadata"]["name"]) for one in rendering}
    for one in rendering:
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", one["metadata"]["name"]):
            yield f"{one['metadata']['name']} is no name"
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    for mount in container["volumeMounts"]:
        if mount["name"] not in volumes:
            yield f"nothing is mounted at {mount['mountPath']}"
    for volume in volumes.values():
        claim, held = volume.get("persistentVolumeClaim"), volume.get("configMap")
        if claim and ("PersistentVolumeClaim", claim["claimName"]) not in there:
            yield f"there is no claim {claim['claimName']}"
        if held and ("ConfigMap", held["name"]) not in there:
            yield f"there is no config map {held['name']}"
    ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
    selectors = [workload["spec"]["selector"]["matchLabels"]]
    selectors += [one["spec"]["podSelector"]["matchLabels"] for one in of_kind(rendering, "NetworkPolicy")]
    for service in of_kind(rendering, "Service"):
        selectors.append(service["spec"]["selector"])
        yield from (f"no port {port['name']}" for port in service["spec"]["ports"] if port["targetPort"] not in ports)
    for selector in selectors:
        if not selector.items() <= pod["metadata"]["labels"].items():
            yield f"{selector} selects no pod"


@pytest.mark.parametrize("side", SIDES)
def test_what_is_rendered_is_valid_for_kubernetes_and_fits_together(side: str, objects: dict[str, Any]) -> None:
    assert {one["metadata"]["name"]: faults(one) for one in objects[side] if faults(one)} == {}
    assert list(unfit(objects[side])) == []


@pytest.mark.parametrize("side", SIDES)
def test_it_runs_the_image_of_this_version(side: str, objects: dict[str, Any]) -> None:
    (workload,) = of_kind(objects[side], "StatefulSet")
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"collegium:{collegium.__version__}"
    assert workload["metadata"]["labels"]["app.kubernetes.io/component"] == side


def test_the_consortium_file_of_the_base_is_read_and_has_the_ports_of_the_service(
    objects: dict[str, Any], tmp_path: Path
) -> None:
    (held,) = of_kind(objects["coordinator"], "ConfigMap")
    ((name, text),) = held["data"].items()
    (tmp_path / name).write_text(text, encoding="utf-8")
    config = read_consortium(tmp_path / name)
    (workload,) = of_kind(objects["coordinator"], "StatefulSet")
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    assert container["args"][:3] == ["coordinator", "serve", name]
    assert {"name": "consortium", "mountPath": f"/data/{name}", "subPath": name, "readOnly": True} in container[
        "volumeMounts"
    ]
    service = for_parties(objects["coordinator"])
    served = {f":{port['port']}" for port in service["spec"]["ports"]}
    dialled = (config.consortium.address, config.consortium.enrolment)
    assert {address[address.rindex(":") :] for address in dialled} == served


def test_a_party_reaches_the_ports_of_the_coordinators_service_alone(objects: dict[str, Any]) -> None:
    service = for_parties(objects["coordinator"])
    (policy,) = of_kind(objects["party"], "NetworkPolicy")
    open_ports = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}
    assert open_ports == {port["port"] for port in service["spec"]["ports"]} | {53}


def test_the_overlay_of_the_page_renders_with_its_own_image_and_consortium(tmp_path: Path) -> None:
    (overlay,) = [block for block in blocks_of(text_of_page("deploying.md"), "yaml") if "kind: Kustomization" in block]
    shutil.copytree(BASES, tmp_path / "kubernetes")
    own = tmp_path / "own"
    own.mkdir()
    assert "../kubernetes/coordinator" in overlay
    (own / "kustomization.yaml").write_text(overlay, encoding="utf-8")
    changed = (BASES / "coordinator" / "consortium.toml").read_text().replace("readmission", "another")
    (own / "consortium.toml").write_text(changed, encoding="utf-8")
    found = rendered(own)
    assert not [fault for one in found for fault in faults(one)] and list(unfit(found)) == []
    (workload,) = of_kind(found, "StatefulSet")
    assert "example.org/" in workload["spec"]["template"]["spec"]["containers"][0]["image"]
    (held,) = of_kind(found, "ConfigMap")
    assert 'name = "another"' in held["data"]["consortium.toml"]
    assert {one["metadata"]["namespace"] for one in found} == {"collegium"}


def test_planted_mistakes_are_found(objects: dict[str, Any]) -> None:
    planted = json.loads(json.dumps(objects["coordinator"]))
    (workload,) = of_kind(planted, "StatefulSet")
    pod = workload["spec"]["template"]["spec"]
    pod["containers"][0]["livenessProb"] = pod["containers"][0].pop("livenessProbe")
    pod["volumes"][0]["persistentVolumeClaim"]["claimName"] = "another"
    workload["spec"]["selector"]["matchLabels"] = {"app": "another"}
    service = for_parties(planted)
    service["spec"]["ports"][0]["targetPort"] = "party"
    assert [fault for fault in faults(workload) if "livenessProb" in fault]
    assert len(list(unfit(planted))) == 3
    workload["spec"]["replicas"] = "one"
    assert [fault for fault in faults(workload) if fault.startswith("spec.replicas")]
