"""Addresses of drafts: what a policy may name."""

import re

import pytest

from outrider.contract.addresses import (
    MAX_DRAFTS,
    address_problem,
    allowed_host_problem,
    is_address,
    is_host,
)
from outrider.contract.settings import PolicySettings, SettingsError


@pytest.mark.parametrize(
    "text",
    [
        *("10.0.0.1:50051", "draft-0.drafts.ns.svc:1", "localhost:50052"),
        *("[fd00::1]:65535", "[fe80::1%eth0]:9000", "[fe80::1%25eth0.5]:9000"),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str) -> None:
    assert is_address(text)
    assert address_problem([text]) is None


@pytest.mark.parametrize(
    "text",
    [
        *("", "nope", ":1", "h:", "h:0", "h:65536", "h:99999", "h:-1", "h:²", "fd00::1:5"),
        *("a b:1", "h:1\n", "unix:/tmp/x", "http://h:1", "h" * 254 + ":1"),
        *("[fe80::1%]:1", "[%eth0]:1", "[fe80::1%a b]:1", "[fe80::1%a%b]:1"),
    ],
)
def test_anything_else_is_none(text: str) -> None:
    assert not is_address(text)
    with pytest.raises(SettingsError, match=r"policy\.drafts: .* is not allowed"):
        PolicySettings(drafts=("a:1", text)).check("policy")


def test_an_address_is_there_once_and_there_are_not_too_many() -> None:
    assert address_problem(["a:1", "b:1", "a:1"]) == "'a:1' is there twice"
    many = [f"h{number}:1" for number in range(MAX_DRAFTS + 1)]
    assert address_problem(many[1:]) is None
    assert re.search(f"{MAX_DRAFTS + 1} addresses .* at most 1024", address_problem(many) or "")


@pytest.mark.parametrize("text", ["a", "chat.example.com", "10.0.0.1", "::1", "a_b-c", "*", "X"])
def test_a_host_has_no_port(text: str) -> None:
    assert is_host(text)


@pytest.mark.parametrize(
    "text", ["", "a:1", "[::1]", "a b", "http://a", ".", "a.", "*.a", "a" * 64]
)
def test_what_is_no_host_is_none(text: str) -> None:
    assert not is_host(text)


@pytest.mark.parametrize(
    "text",
    [
        *("a", "::1", "*", "app://obsidian.md", "https://chat.example.com:8443", "http://[::1]:1"),
        *("http://10.0.0.1", "chrome-extension://abc", "vscode-webview://*", "file://*", "X://Y"),
    ],
)
def test_hosts_and_origins_may_be_let_in(text: str) -> None:
    assert allowed_host_problem(text) is None


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "a:1",
            "a/b",
            "https://",
            "https://a/",
            "https://a/v1",
            "https://a:0",
            "://a",
            "file://",
        ),
        *("https://*", "HTTP://*", "http://*.example.com", "*://a", "http://::1", "http://u@a"),
        *("app://*:1", "app://a b", "app:a", "https://a,https://b", "http://a\n"),
    ],
)
def test_what_is_neither_host_nor_origin_is_refused_with_both(text: str) -> None:
    problem = allowed_host_problem(text) or ""
    assert problem.startswith(f"{text!r} is not allowed; ")
    assert "the name of a host" in problem
    assert "an origin" in problem


def test_the_origin_of_files_is_nobodys_own() -> None:
    assert "serve yours from localhost" in (allowed_host_problem("null") or "")
