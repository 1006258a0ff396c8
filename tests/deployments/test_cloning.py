"""Cloning with git and, on a machine without git, with Dulwich; both behave the same."""

import ipaddress
import os
import socket
import ssl
import subprocess
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.message import Message
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from apps.deployments import checks, git, sample
from apps.deployments.builds import clone
from apps.deployments.builds.build_context import BuildContext, BuildFailed
from apps.deployments.builds.clone import ClonedCommit
from apps.deployments.models import LogLine
from apps.deployments.services import progress
from apps.deployments.services.logs import RevisionLog
from tests.child_output import read_line
from tests.deployments.repositories import GIT, Repository
from tests.factories.deployments import DeploymentFactory, RevisionFactory
from tests.factories.organizations import WorkspaceFactory
from tests.gate import run_folder

pytestmark = [pytest.mark.integration, pytest.mark.django_db]

ORGANIZATION_NUMBER = 4242


@pytest.fixture(autouse=True)
def data_folder(settings):
    settings.DATA_DIR = Path(os.environ[run_folder.FOLDER], "clones").resolve()
    settings.DATA_DIR.mkdir(exist_ok=True)
    settings.ALLOW_FILE_GIT = True
    settings.ALLOW_PRIVATE_ADDRESSES = True
    return settings.DATA_DIR


@pytest.fixture
def no_git(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))


@pytest.fixture(params=["git", "dulwich"])
def program(request):
    """Runs each test with git and without."""
    if request.param == "dulwich":
        request.getfixturevalue("no_git")
    assert git.is_installed() is (request.param == "git")
    return request.param


@pytest.fixture
def clone_source():
    """Return a function that clones a source and returns the commit, the folder and the log."""

    workspace = WorkspaceFactory(organization__number=ORGANIZATION_NUMBER)

    def clone_it(url, ref=""):
        deployment = DeploymentFactory(workspace=workspace, repo_url=url)
        revision = RevisionFactory(deployment=deployment, status="AWAITING_BUILD")
        claimed = progress.claim(revision.pk, owner="a test")
        ids = {"workspace_id": workspace.pk, "deployment_id": deployment.pk}
        with RevisionLog(**ids, revision_id=revision.pk) as log:
            context = BuildContext(claimed, log)
            context.directory.create()
            commit = clone.clone(context, repo_url=url, ref=ref)
        lines = LogLine.unscoped.filter(revision=revision).order_by("pk")
        return commit, context.directory.source, [line.message for line in lines]

    return clone_it


@pytest.fixture
def clone_error(clone_source):
    def read_clone_error(url, ref=""):
        with pytest.raises(BuildFailed) as failure:
            clone_source(url, ref)
        return str(failure.value)

    return read_clone_error


def test_the_default_branch_is_cloned_with_its_files(program, repository, clone_source):
    repository.commit({"old.txt": "old"}, "The first")
    sha = repository.commit({"a/b.txt": "one\n", "run.sh": ""}, "Words\n more words\n\nA body")
    (repository.folder / "run.sh").chmod(0o755)
    (repository.folder / "link").symlink_to("a/b.txt")
    sha = repository.commit_all("Words\nmore words\n\nA body")

    commit, source, log = clone_source(repository.url)

    assert commit == ClonedCommit(sha, "Words more words")
    assert sorted(path.name for path in source.iterdir()) == [".git", "a", "link", "run.sh"]
    assert (source / "a/b.txt").read_text() == "one\n"
    assert (source / "link").readlink() == Path("a/b.txt")
    assert (source / "run.sh").stat().st_mode & 0o100
    assert log == [f"    {sha[:12]} Words more words"]
    assert (source / ".git/shallow").read_text() == f"{sha}\n"


def test_a_branch_a_tag_and_a_commit_are_cloned_by_name(program, repository, clone_source):
    first = repository.commit({"v": "1"}, "One")
    repository.git("tag", "--annotate", "v1", "--message", "The first version")
    repository.git("tag", "plain")
    repository.git("checkout", "--quiet", "-b", "feature/two")
    second = repository.commit({"v": "2"}, "Two")
    repository.git("checkout", "--quiet", "main")
    repository.commit({"v": "3"}, "Three")

    def clone_ref(ref):
        commit, source, _ = clone_source(repository.url, ref)
        return commit, (source / "v").read_text()

    assert clone_ref("v1") == (ClonedCommit(first, "One"), "1")
    assert clone_ref("plain") == (ClonedCommit(first, "One"), "1")
    assert clone_ref("refs/tags/v1") == (ClonedCommit(first, "One"), "1")
    assert clone_ref("feature/two") == (ClonedCommit(second, "Two"), "2")
    assert clone_ref(first) == (ClonedCommit(first, "One"), "1")


def test_a_missing_ref_is_reported(program, repository, clone_error):
    repository.commit({"v": "1"})

    for ref in ("nowhere", "0" * 40):
        message = f"The repository {repository.url} has no branch, tag or commit {ref}."
        assert clone_error(repository.url, ref) == message


def test_an_empty_repository_is_reported(program, repository, clone_error):
    message = f"The repository {repository.url} is empty: it has no commit."

    assert clone_error(repository.url) == message


def test_a_missing_repository_is_reported(program, tmp_path, clone_error):
    url = (tmp_path / "nowhere").as_uri()

    assert clone_error(url) == f"There is no repository at {url}."


def test_a_folder_that_is_not_a_repository_is_reported(program, tmp_path, clone_error):
    (tmp_path / "folder").mkdir(mode=0o755)
    url = (tmp_path / "folder").as_uri()

    assert clone_error(url) == f"There is no repository at {url}."


@pytest.mark.skipif(os.geteuid() != 0, reason="builds have a user of their own as root only")
@pytest.mark.parametrize(("mode", "parent_mode"), [(0o700, 0o755), (0o755, 0o700), (0o711, 0o755)])
def test_repository_is_read_with_the_rights_of_the_build_user(
    program, open_folder, clone_error, mode, parent_mode
):
    parent = open_folder / "private"
    parent.mkdir()
    repository = Repository(parent / "repository")
    repository.commit({"secret.txt": "of root"})
    repository.folder.chmod(mode)
    parent.chmod(parent_mode)

    message = clone_error(repository.url)

    is_hidden = parent_mode == 0o700
    assert message == (
        f"There is no repository at {repository.url}."
        if is_hidden
        else f"The repository {repository.url} cannot be read by the unprivileged user that builds"
        " run as."
    )


def test_clone_fails_after_file_git_is_disallowed(program, repository, clone_error, settings):
    repository.commit({"v": "1"})
    settings.ALLOW_FILE_GIT = False

    assert clone_error(repository.url).endswith(
        "are not allowed on this installation (ALLOW_FILE_GIT)."
    )


def test_clone_from_a_private_address_fails(program, clone_error, settings):
    settings.ALLOW_PRIVATE_ADDRESSES = False

    assert "is on a private network" in clone_error("http://127.0.0.1:9/a.git")


def test_an_unreachable_server_is_reported(program, clone_error):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    for scheme in ("git", "http"):
        url = f"{scheme}://127.0.0.1:{port}/a.git"
        assert clone_error(url) == f"The server of {url} cannot be reached."


def test_hooks_and_filters_do_not_run(program, repository, clone_source, tmp_path):
    repository.commit({".gitattributes": "*.txt filter=evil eol=crlf\n", "a.txt": "a\n"})
    marker = tmp_path / "ran"
    repository.git("config", "filter.evil.smudge", f"touch {marker}")
    hook = repository.folder / ".git/hooks/post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {marker}\n")
    hook.chmod(0o755)

    _, source, _ = clone_source(repository.url)

    assert (source / "a.txt").exists()
    assert not (source / ".git/hooks/post-checkout").exists()
    assert not marker.exists()


@pytest.fixture
def git_server(open_folder):
    """Run a Git server on a local port and yield the base address of its repositories."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    options = ["--reuseaddr", "--listen=127.0.0.1", f"--port={port}", f"--base-path={open_folder}"]
    server = subprocess.Popen(
        [GIT, "-c", "safe.directory=*", "daemon", "--export-all", "--verbose", *options],
        stderr=subprocess.PIPE,
    )
    assert b"Ready to rumble" in read_line(server.stderr)
    yield f"git://127.0.0.1:{port}"
    server.terminate()
    server.communicate(timeout=30)


def test_a_repository_is_fetched_from_a_git_server(
    program, repository, git_server, clone_source, clone_error
):
    first = repository.commit({"v": "1"}, "First words")
    second = repository.commit({"v": "2"}, "Second words")
    url = f"{git_server}/repository"

    assert clone_source(url)[0] == ClonedCommit(second, "Second words")
    assert clone_source(url, "main")[0] == ClonedCommit(second, "Second words")
    assert clone_source(url, first)[0] == ClonedCommit(first, "First words")
    assert (
        clone_error(url, "nowhere") == f"The repository {url} has no branch, tag or commit nowhere."
    )
    assert clone_error(url, "0" * 40).endswith(f"has no branch, tag or commit {'0' * 40}.")
    missing = f"{git_server}/nowhere"
    assert clone_error(missing) == f"There is no repository at {missing}."


def git_over_http(folder):
    """Return a WSGI application that serves a folder with git; /private requires a sign-in."""

    def application(environ, start_response):
        if environ["PATH_INFO"].startswith("/private"):
            start_response("401 Unauthorized", [("WWW-Authenticate", "Basic")])
            return []
        passed_on = ("PATH_INFO", "QUERY_STRING", "REQUEST_METHOD", "CONTENT_TYPE")
        answer = subprocess.run(
            [GIT, "-c", "safe.directory=*", "http-backend"],
            input=environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)),
            env={
                **{name: environ.get(name, "") for name in passed_on},
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_PROJECT_ROOT": str(folder),
                "GIT_PROTOCOL": environ.get("HTTP_GIT_PROTOCOL", ""),
                "HTTP_CONTENT_ENCODING": environ.get("HTTP_CONTENT_ENCODING", ""),
            },
            check=False,  # git has sent the error to the client
            capture_output=True,
        )
        head, _, body = answer.stdout.partition(b"\r\n\r\n")
        headers = Message()
        for line in head.decode().splitlines():
            name, _, value = line.partition(": ")
            headers[name] = value
        status = headers.get("Status", "200 OK")
        del headers["Status"]
        start_response(status, headers.items())
        return [body]

    return application


class QuietHandler(WSGIRequestHandler):
    def log_message(self, *_):
        pass


@contextmanager
def serve_wsgi(application, tls=None):
    with make_server("127.0.0.1", 0, application, handler_class=QuietHandler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def test_a_repository_is_fetched_from_a_web_server(program, repository, clone_source, clone_error):
    first = repository.commit({"v": "1"}, "First words")
    second = repository.commit({"v": "2"}, "Second words")

    with serve_wsgi(git_over_http(repository.folder.parent)) as port:
        web = f"http://127.0.0.1:{port}"
        url = f"{web}/repository"

        assert clone_source(url)[0] == ClonedCommit(second, "Second words")
        assert clone_source(url, "main")[0] == ClonedCommit(second, "Second words")
        assert clone_source(url, first)[0] == ClonedCommit(first, "First words")
        for ref in ("nowhere", "0" * 40):
            message = f"The repository {url} has no branch, tag or commit {ref}."
            assert clone_error(url, ref) == message
        assert clone_error(f"{web}/nowhere") == f"There is no repository at {web}/nowhere."
        assert clone_error(f"{web}/private") == (
            f"There is no public repository at {web}/private: it does not exist, or it requires"
            " a sign-in."
        )


@pytest.fixture
def tls(tmp_path):
    """A TLS server context, and the file with the certificate for its clients."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    trusted, secret = tmp_path / "trusted.pem", tmp_path / "secret.pem"
    trusted.write_bytes(certificate.public_bytes(Encoding.PEM))
    trusted.chmod(0o644)
    secret.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(trusted, secret)
    return context, trusted


@pytest.mark.usefixtures("program")
def test_https_clone_uses_the_operators_certificates(
    repository, clone_source, clone_error, tls, monkeypatch
):
    sha = repository.commit({"v": "1"}, "First words")
    context, trusted = tls

    with serve_wsgi(git_over_http(repository.folder.parent), context) as port:
        url = f"https://127.0.0.1:{port}/repository"

        assert "certificate" in clone_error(url)
        monkeypatch.setenv("GIT_SSL_CAINFO", str(trusted))
        assert clone_source(url)[0] == ClonedCommit(sha, "First words")


def test_a_local_submodule_is_refused(repository, tmp_path, clone_error):
    other = Repository(tmp_path / "other")
    other.commit({"x.py": ""})
    repository.git("-c", "protocol.file.allow=always", "submodule", "add", other.url, "other")
    repository.commit_all()

    assert clone_error(repository.url) == (
        "The submodule other has a local address, which is not allowed."
    )


def test_repository_with_too_many_submodules_is_refused(repository, clone_error):
    entries = [
        f'[submodule "m{n}"]\n\tpath = m{n}\n\turl = https://git.example/m{n}.git\n'
        for n in range(51)
    ]
    repository.commit({".gitmodules": "".join(entries)})

    assert clone_error(repository.url) == "The repository has more than 50 submodules."


def test_submodules_require_git(no_git, repository, clone_error):
    entry = '[submodule "tools"]\n\tpath = lib/tools\n\turl = https://git.example/tools.git\n'
    repository.commit({".gitmodules": entry})

    assert clone_error(repository.url) == (
        f"The repository {repository.url} has submodules (tools), which need git."
        " Have the operator install git on this machine."
    )


def test_ssh_addresses_require_git(no_git, clone_error):
    for url in ("ssh://git@127.0.0.1/a.git", "git@127.0.0.1:a.git"):
        assert clone_error(url).startswith(
            f"{url} cannot be cloned: SSH addresses need git, which this machine does not"
        )


def test_the_sample_repository_is_a_valid_git_repository(program, data_folder, clone_source):
    url, sha = sample.ensure_repository()

    commit, source, _ = clone_source(url, "main")

    assert commit == ClonedCommit(sha, "The sample agent")
    assert (source / "langgraph.json").read_text() == (
        sample.TEMPLATE / "langgraph.json"
    ).read_text()
    argv = [GIT, "-c", "safe.directory=*", "-C", str(data_folder / "sample-agent"), "fsck"]
    subprocess.run([*argv, "--strict"], check=True, capture_output=True)


def test_system_check_warns_without_git(program):
    message_ids = [message.id for message in checks.check_git_installed(None)]

    assert message_ids == ([] if program == "git" else ["deployments.I001"])
