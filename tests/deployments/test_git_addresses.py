import socket

import pytest

from apps.deployments import git
from apps.deployments.errors import InvalidGitAddress
from config.env import Env


@pytest.mark.parametrize(
    ("text", "scheme", "host"),
    [
        ("https://github.com/acme/agent", "https", "github.com"),
        ("http://git.example:8080/a.git", "http", "git.example"),
        ("ssh://git@git.example/a.git", "ssh", "git.example"),
        ("git://git.example/a.git", "git", "git.example"),
        ("git@github.com:acme/agent.git", "ssh", "github.com"),
    ],
)
def test_remote_addresses_are_parsed(text, scheme, host):
    address = git.parse_address(text)

    assert (address.scheme, address.host, address.folder) == (scheme, host, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "agent",
        "--upload-pack=touch /tmp/x",
        "ext::sh -c true",
        "https://user:secret@git.example/a",
        "https://token@git.example/a",
        "https:///a",
        "https://git.example/",
        "https://git.example/a\nb",
        "ftp://git.example/a",
        "file://other.example/a",
        "https://[::1/a",
    ],
)
def test_malformed_git_address_is_rejected(text, settings):
    settings.ALLOW_FILE_GIT = True

    with pytest.raises(InvalidGitAddress):
        git.parse_address(text)


@pytest.mark.parametrize("text", ["file:///srv/agent", "/srv/agent"])
def test_local_repository_requires_allow_file_git(text, settings):
    settings.ALLOW_FILE_GIT = False
    with pytest.raises(InvalidGitAddress, match="ALLOW_FILE_GIT"):
        git.parse_address(text)

    settings.ALLOW_FILE_GIT = True

    assert str(git.parse_address(text).folder) == "/srv/agent"


def test_the_sample_repository_is_accepted_without_allow_file_git(settings, tmp_path):
    settings.ALLOW_FILE_GIT = False
    settings.DATA_DIR = tmp_path

    assert git.parse_address(f"file://{tmp_path}/sample-agent").folder == tmp_path / "sample-agent"
    for outside in ("sample-agent/../other", "other"):
        with pytest.raises(InvalidGitAddress, match="ALLOW_FILE_GIT"):
            git.parse_address(f"file://{tmp_path}/{outside}")


def test_local_repositories_are_refused_by_default(monkeypatch):
    monkeypatch.delenv("ALLOW_FILE_GIT", raising=False)
    for variables in ({}, {"database_url": "postgresql://a:b@c/d"}):
        assert Env(**variables).allow_file_git is False


def test_repository_inside_the_data_folder_is_rejected(settings, tmp_path):
    settings.ALLOW_FILE_GIT = True
    settings.DATA_DIR = tmp_path
    (tmp_path / "link").symlink_to(tmp_path / "revisions")

    for inside in ("revisions/x/1/source", "sample-agent/../revisions/x", "link/x"):
        with pytest.raises(InvalidGitAddress):
            git.parse_address(f"file://{tmp_path}/{inside}")
    assert git.parse_address(f"file://{tmp_path}/sample-agent").scheme == "file"


@pytest.mark.parametrize("ref", ["main", "refs/tags/v1", "feature/x-1", "0" * 40, ""])
def test_valid_refs_are_accepted(ref):
    assert git.normalize_ref(ref) == ref


@pytest.mark.parametrize("ref", ["-x", "a..b", "a b", "a:b", "x" * 300, "a~1", "x.lock"])
def test_malformed_ref_is_rejected(ref):
    with pytest.raises(InvalidGitAddress):
        git.normalize_ref(ref)


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "fd00::1", "::ffff:10.0.0.1"]
)
def test_host_on_a_private_network_is_rejected(address, monkeypatch, settings):
    resolved = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: resolved)
    settings.ALLOW_PRIVATE_ADDRESSES = False

    with pytest.raises(git.HostNotReachable, match="private network"):
        git.check_reachable("git.example")

    settings.ALLOW_PRIVATE_ADDRESSES = True
    git.check_reachable("git.example")


def test_one_private_address_among_public_ones_refuses_the_host(monkeypatch, settings):
    resolved = [
        (socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, 0))
        for address in ("140.82.121.4", "127.0.0.1")
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: resolved)
    settings.ALLOW_PRIVATE_ADDRESSES = False

    with pytest.raises(git.HostNotReachable):
        git.check_reachable("git.example")
