"""Builds install from the operator's package indexes and do not learn the passwords."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import threading
import zipfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from apps.deployments.builds import venv
from apps.deployments.builds.build_context import BuildFailed
from apps.deployments.builds.installer import read_config
from apps.deployments.networks import build_egress
from apps.deployments.sandbox import Bind, Network, prepare_dir, spawn
from apps.deployments.sandbox.egress.package_index import Index

from .conftest import PYTHON, finish

uv = pytest.importorskip("uv")
pytest.importorskip("ensurepip")

PASSWORD = "s3cret-of-the-operator"
AUTHORIZATION = "Basic " + base64.b64encode(f"reader:{PASSWORD}".encode()).decode()

# Reads what a malicious build backend can read: its environment, memory and files, and what the
# proxy answers; prints each place with the secret.
SEARCH = """
import base64, os, pathlib, socket, sys
# In hexadecimal, so that this command line does not have them.
secrets = [bytes.fromhex(argument).decode() for argument in sys.argv[1:]]
found = []
def look(place, data):
    if any(secret.encode() in data for secret in secrets):
        found.append(place)
for process in pathlib.Path("/proc").iterdir():
    if process.name.isdigit():
        for name in ("environ", "cmdline"):
            try:
                data = (process / name).read_bytes()
            except OSError:
                continue
            if name == "environ" or process.name != str(os.getpid()):
                look(str(process / name), data)
for root in ("/tmp", "/etc", os.environ["XDG_CONFIG_HOME"], os.environ["XDG_CONFIG_DIRS"]):
    for folder, _, names in os.walk(root):
        for name in names:
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    look(file.name, file.read())
            except OSError:
                pass
host, port = os.environ["http_proxy"].removeprefix("http://").split(":")
index = os.environ["UV_INDEX_URL"].split("/")[2]
requests = [
    f"GET http://{index}/echo HTTP/1.1",
    f"GET http://{index}/echo HTTP/1.1\\r\\nContent-Length: 5\\r\\n\\r\\nGET /x HTTP/1.1",
    f"TRACE http://{index}/echo HTTP/1.1",
    f"POST http://{index}/upload HTTP/1.1\\r\\nContent-Length: 0",
    f"GET http://{index}/moved HTTP/1.1",
    f"CONNECT {index} HTTP/1.1",
]
statuses = []
for request in requests:
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(request.encode() + 2 * b"\\r\\n")
        answer = b""
        while data := connection.recv(65536):
            answer += data
    statuses.append(answer.split(b" ")[1].decode())
    look(request.split(chr(13))[0], answer)
print(found, ",".join(statuses))
"""


def make_wheel(name):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as wheel:
        wheel.writestr(zipfile.ZipInfo(f"{name}.py"), "VALUE = 'installed'")
        info = f"{name}-1.dist-info/"
        wheel.writestr(
            zipfile.ZipInfo(info + "METADATA"), f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"
        )
        tags = "Root-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(zipfile.ZipInfo(info + "WHEEL"), f"Wheel-Version: 1.0\n{tags}")
        wheel.writestr(zipfile.ZipInfo(info + "RECORD"), "")
    return content.getvalue()


class _Handler(http.server.BaseHTTPRequestHandler):
    """A private index: `/simple/<name>/` links the wheel by the index's own absolute address."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.requests.append((self.command, self.path))
        self.server.heads.append(dict(self.headers))
        if self.headers["Authorization"] != AUTHORIZATION:
            self.answer(401, "text/plain", b"Sign in.")
        elif self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", f"{self.server.url}/echo")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path.startswith("/files/"):
            name = self.path.removeprefix("/files/").split("-")[0]
            self.answer(200, "application/octet-stream", make_wheel(name))
        elif self.path.startswith("/simple/"):
            name = self.path.split("/")[2]
            link = f"{self.server.url}/files/{name}-1-py3-none-any.whl"
            self.answer(200, "text/html", f'<a href="{link}">{name}-1-py3-none-any.whl</a>')
        else:
            self.answer(404, "text/plain", b"There is no such page.")

    do_HEAD = do_POST = do_TRACE = do_GET  # noqa: N815 - names of http.server

    def answer(self, status, kind, content):
        body = content.encode() if isinstance(content, str) else content
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))

    def log_message(self, *_):
        pass


@contextmanager
def private_index():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.requests, server.heads = [], []
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def build(folders):
    """Return a function that gives the policy of a build with an operator's configuration."""

    def make(environment):
        config = read_config(environment, hides_passwords=True)
        configuration = folders.own.parent / "installer"
        variables = config.write(configuration)
        folder = prepare_dir(folders.own.parent / "build", uid=folders.uid)
        prepare_dir(configuration, uid=folders.uid)
        uv_binary = Bind(Path(uv.find_uv_bin()).resolve(), Path("/opt/uv"))
        return folders.policy(
            cwd=folder,
            read_only=(uv_binary, configuration, *config.read_only),
            writable=(folder,),
            env={**config.env, **variables, "UV_LINK_MODE": "copy", "PIP_NO_INPUT": "1"},
            network=Network.PROXIED,
            egress=build_egress(config.urls, config.indexes),
        )

    return make


def run_command(policy, *command):
    process = spawn(policy, command, stdout=-1, stderr=-2)
    return finish(process, 120)


def test_malicious_build_installs_from_a_private_index_and_finds_no_password(build, tmp_path):
    home = tmp_path / "home"
    for name in ("pip", "uv"):
        (home / ".config" / name).mkdir(parents=True)
    with private_index() as server:
        address = f"http://reader:{PASSWORD}@127.0.0.1:{server.server_port}"
        (home / ".config/pip/pip.conf").write_text(
            f"[global]\nextra_index_url =\n  {address}/simple/\n  {address}/simple/\n"
            f"proxy = {address}\n[install]\nclient-cert = {home}/key.pem\n"
        )
        (home / ".config/uv/uv.toml").write_text(
            f'publish-url = "{address}"\n[[index]]\nname = "own"\nurl = "{address}/simple/"\n'
            f'[pip]\nkeyring-provider = "subprocess"\nextra-index-url = ["{address}/simple/"]\n'
        )
        (home / ".config/uv/credentials.toml").write_text(f'password = "{PASSWORD}"')
        (home / "key.pem").write_text(PASSWORD)
        policy = build(
            {
                "HOME": str(home),
                "UV_INDEX_URL": f"{address}/simple/",
                "PIP_INDEX_URL": f"{address}/simple/",
                "https_proxy": f"http://ann:{PASSWORD}@127.0.0.1:1",
                "UV_PUBLISH_TOKEN": PASSWORD,
            }
        )

        made = run_command(policy, PYTHON, "-m", "venv", "v")
        by_uv = run_command(
            policy, "/opt/uv", "pip", "install", "--quiet", "--python", "v/bin/python", "first"
        )
        by_pip = run_command(
            policy, "v/bin/python", "-m", "pip", "install", "--quiet", "--no-cache-dir", "second"
        )
        imported = run_command(
            policy, "v/bin/python", "-c", "import first, second; print(first.VALUE, second.VALUE)"
        )
        served = len(server.requests)
        secrets = [PASSWORD, AUTHORIZATION.removeprefix("Basic ")]
        arguments = [secret.encode().hex() for secret in secrets]
        search = run_command(policy, PYTHON, "-I", "-S", "-c", SEARCH, *arguments)

    assert (by_uv.code, by_pip.code) == (0, 0), (made.output, by_uv.output, by_pip.output)
    assert imported.output == "installed installed"
    assert search.output == "[] 404,404,502,502,302,403"
    assert {path for method, path in server.requests[served:]} == {"/echo", "/moved"}
    assert {method for method, _ in server.requests} == {"GET", "HEAD"}
    assert all("Content-Length" not in head for head in server.heads)


def test_lock_file_with_the_address_of_a_private_index_is_installed_and_kept(build, folders):
    with private_index() as server:
        address = f"http://reader:{PASSWORD}@127.0.0.1:{server.server_port}"
        policy = build({"UV_INDEX_URL": f"{address}/simple/"})
        (policy.cwd / "pyproject.toml").write_text(
            '[project]\nname = "mine"\nversion = "1"\ndependencies = ["first"]\n'
        )
        wheel = make_wheel("first")
        lock = f"""version = 1
requires-python = ">=3.11"

[[package]]
name = "first"
version = "1"
source = {{ registry = "{server.url}/simple/" }}
wheels = [
    {{ url = "{server.url}/files/first-1-py3-none-any.whl", \
hash = "sha256:{hashlib.sha256(wheel).hexdigest()}", size = {len(wheel)} }},
]

[[package]]
name = "mine"
version = "1"
source = {{ virtual = "." }}
dependencies = [{{ name = "first" }}]

[package.metadata]
requires-dist = [{{ name = "first" }}]
"""
        (policy.cwd / "uv.lock").write_text(lock)
        prepare_dir(policy.cwd, uid=folders.uid)
        directory = SimpleNamespace(source=policy.cwd, python=policy.cwd / ".venv/bin/python")
        project = SimpleNamespace(
            source=SimpleNamespace(root=".", package=None),
            folders=(),
            packages=(),
            requirement_files=(),
            installer="uv",
        )
        policy = replace(policy, env={**policy.env, "VIRTUAL_ENV": f"{policy.cwd}/.venv"})
        commands = venv._install_commands(
            SimpleNamespace(directory=directory), project, "/opt/uv", policy.egress.indexes
        )

        results = [run_command(policy, "/opt/uv", "venv", "--quiet", "--python", PYTHON, ".venv")]
        results += [run_command(policy, *command) for command in commands[:3]]
        imported = run_command(
            policy, str(directory.python), "-c", "import first; print(first.VALUE)"
        )

    assert [result.code for result in results] == [0] * 4, results
    assert imported.output == "installed"
    assert (policy.cwd / "uv.lock").read_text() == lock


def test_build_without_the_operators_password_gets_no_package(build):
    """The attack's counterpart: what the proxy adds is what the index asks for."""
    with private_index() as server:
        address = f"http://127.0.0.1:{server.server_port}"
        policy = build({"UV_INDEX_URL": f"{address}/simple/"})

        run_command(policy, "/opt/uv", "venv", "--quiet", "--python", PYTHON, "v")
        result = run_command(
            policy, "/opt/uv", "pip", "install", "--quiet", "--python", "v/bin/python", "first"
        )

    assert result.code != 0
    assert "401" in result.output


def test_configuration_has_only_named_options_and_local_indexes(tmp_path):
    home, index = tmp_path / "home", tmp_path / "index"
    for folder in (home / ".config/uv", index / "wheels", home / ".ssh"):
        folder.mkdir(parents=True)
    (home / ".config/uv/uv.toml").write_text(
        f'find-links = ["{index}/wheels"]\ncache-dir = "{home}/.ssh"\nno-index = true\n'
    )
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("")

    config = read_config(
        {
            "HOME": str(home),
            "SSL_CERT_FILE": str(bundle),
            "PIP_INDEX_URL": "https://packages.example/simple",
            "UV_PUBLISH_TOKEN": "secret",
            "DATABASE_URL": "postgres://secret",
        },
        hides_passwords=True,
    )

    assert config.env == {
        "SSL_CERT_FILE": str(bundle),
        "PIP_INDEX_URL": "https://packages.example/simple",
    }
    assert config.files["user/uv/uv.toml"] == f'find-links = ["{index}/wheels"]\nno-index = true\n'
    local_binds = {bind for bind in config.read_only if bind.source.is_relative_to(tmp_path)}
    assert local_binds == {Bind(index / "wheels", index / "wheels"), Bind(bundle, bundle)}


@pytest.mark.parametrize(
    "url",
    [
        "https://reader:pass%40word@packages.example/simple",
        "https://reader:pa@ss@packages.example:8443/simple",
        "https://token@packages.example/simple?x=1",
        "HTTPS://reader:p;a'ss@packages.example/simple",
        "own=https://reader:pass@[2001:db8::1]:8443/simple other=https://a:pass@b/simple",
    ],
)
def test_no_form_of_an_address_keeps_its_password(url):
    config = read_config({"UV_INDEX": url, "PIP_INDEX_URL": url}, hides_passwords=True)

    cleaned = config.env["UV_INDEX"]
    assert "@" not in cleaned
    assert "pass" not in cleaned
    assert "token" not in cleaned
    assert "pass" not in repr(config.indexes)
    assert config.env["PIP_INDEX_URL"] == cleaned


def test_builds_in_the_network_of_the_machine_get_the_configuration_as_it_is(tmp_path):
    url = "https://reader:pass@packages.example/simple"

    config = read_config({"UV_INDEX": url}, hides_passwords=False)

    assert (config.env["UV_INDEX"], config.indexes) == (url, ())


def test_address_inside_depends_on_the_server_and_the_user_only():
    urls = [f"https://{user}@packages.example/simple" for user in ("a:1", "a:2", "b:1")]

    indexes = [read_config({"UV_INDEX": url}, hides_passwords=True).indexes[0].url for url in urls]

    assert indexes[0] == indexes[1] != indexes[2]


def test_file_with_a_syntax_error_fails_the_build_without_its_content(tmp_path):
    (tmp_path / "uv.toml").write_text(f"index = {PASSWORD}")

    with pytest.raises(BuildFailed) as failure:
        read_config({"UV_CONFIG_FILE": str(tmp_path / "uv.toml")}, hides_passwords=True)

    assert str(failure.value) == "The operator's uv.toml cannot be read."


@pytest.mark.parametrize(
    ("origin", "text", "rewritten"),
    [
        ("https://a.example", "https://a.example/x.whl", "http://127.0.0.1:5/x.whl"),
        ("https://a.example", "https://u:p@A.example:443/x", "http://127.0.0.1:5/x"),
        ("https://a.example", "https://a.example.org/x", "https://a.example.org/x"),
        ("https://a.example", "https://a.example:8443/x", "https://a.example:8443/x"),
        ("https://a.example", "https://a.example@b.example/x", "https://a.example@b.example/x"),
        ("https://a.example", "http://a.example/x", "http://a.example/x"),
        ("https://a.example:8443", "https://a.example:8443/x", "http://127.0.0.1:5/x"),
        ("https://[2001:db8::1]", "'https://[2001:db8::1]/x'", "'http://127.0.0.1:5/x'"),
    ],
)
def test_addresses_of_the_index_in_its_pages_are_rewritten(origin, text, rewritten):
    index = Index("http://127.0.0.1:5", origin, "Basic x")

    assert index.rewrite(text.encode()).decode() == rewritten
