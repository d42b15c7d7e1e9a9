"""Errors travel as gRPC statuses and come back as themselves; addresses."""

from __future__ import annotations

import grpc
import pytest

from collegium.protocol import limits
from collegium.protocol.channels import channel_options, error_of, refusal, split_address
from collegium.protocol.errors import CollegiumError, ConfigurationError, Unreachable, VersionMismatch


def kinds(root: type[CollegiumError] = CollegiumError) -> list[type[CollegiumError]]:
    return [root] + [kind for child in root.__subclasses__() for kind in kinds(child)]


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.code)
def test_every_error_crosses_the_wire_unchanged(kind: type[CollegiumError]) -> None:
    status, details, metadata = refusal(kind("do this"))
    assert status is not grpc.StatusCode.OK
    received = error_of(status, details, metadata)
    assert type(received) is kind and str(received) == "do this"


def test_what_grpc_reports_itself_is_a_lost_connection() -> None:
    assert isinstance(error_of(grpc.StatusCode.UNAVAILABLE, "Socket closed", ()), Unreachable)
    assert isinstance(error_of(grpc.StatusCode.RESOURCE_EXHAUSTED, None, None), Unreachable)
    assert isinstance(error_of(grpc.StatusCode.UNIMPLEMENTED, "", ()), VersionMismatch)


def test_a_peer_s_text_is_cut() -> None:
    received = error_of(grpc.StatusCode.INTERNAL, "x" * 10_000, ())
    assert len(str(received)) < 2 * limits.MAX_TEXT_CHARS


@pytest.mark.parametrize(
    ("address", "parts"), [("hub.example.org:7443", ("hub.example.org", 7443)), ("[::1]:0", ("::1", 0))]
)
def test_addresses(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize("address", ["", "hub", ":7443", "hub:", "hub:x", "hub:70000", "hub:-1"])
def test_what_is_no_address_is_said(address: str) -> None:
    with pytest.raises(ConfigurationError, match="host:port"):
        split_address(address)


@pytest.mark.parametrize(("address", "proxy"), [("127.0.0.1:1", 0), ("localhost:1", 0), ("hub.example.org:1", 1)])
def test_this_machine_is_never_reached_through_a_proxy(address: str, proxy: int) -> None:
    assert dict(channel_options(address))["grpc.enable_http_proxy"] == proxy
