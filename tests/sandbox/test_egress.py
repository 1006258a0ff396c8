"""A sandbox with its own network reaches the allowed addresses, and only through the proxy."""

from __future__ import annotations

import http.server
import json
import os
import socket
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path

from apps.deployments.sandbox import Egress, Forward, Network, usage
from apps.deployments.sandbox.egress import process as egress_process
from apps.deployments.sandbox.egress import rules as egress_rules
from apps.deployments.sandbox.stub import syscalls
from tests.child_output import read_line
from tests.installation import wait_until

# Each attempt prints "reached" or the refusal; what it reaches is on this machine.
ATTEMPTS = """
import json, os, socket, sys, urllib.error, urllib.request
attempts = json.loads(sys.argv[1])
results = []

def connect(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as connection:
        connection.settimeout(5)
        connection.connect(tuple(address) if isinstance(address, list) else address)
        if kind == socket.SOCK_DGRAM:
            connection.send(b"x")
            connection.recv(1)

def proxied(url):
    with urllib.request.urlopen(url, timeout=20) as response:
        response.read()

def tunnel(authority):
    with socket.create_connection(("127.0.0.1", 61080), timeout=20) as connection:
        connection.sendall(f"CONNECT {authority} HTTP/1.1\\r\\n\\r\\n".encode())
        status = connection.recv(100).split(b" ")[1]
        if status != b"200":
            raise OSError(status.decode())

def raw(kind):
    socket.socket(socket.AF_INET, socket.SOCK_RAW, kind).close()

def packet(_):
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()

for name, argument in attempts:
    try:
        if name == "connect":
            connect(*argument)
        else:
            globals()[name](argument)
        results.append("reached")
    except urllib.error.HTTPError as error:
        results.append(str(error.code))
    except OSError as error:
        results.append(str(error.args[-1] if not error.errno else error.errno))
print(json.dumps(results))
"""


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append(self.path)
        body = b"x" * 200_000
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextmanager
def http_server(address="127.0.0.1"):
    kind = type("Server", (http.server.ThreadingHTTPServer,), {"requests": None})
    if ":" in address:
        kind.address_family = socket.AF_INET6
    with kind((address, 0), _Handler) as server:
        server.requests = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def own_address():
    """An address of this machine's interface; loopback where it has no other."""
    addresses = [own.ip for own in egress_rules._interfaces() if own.version == 4]
    return str(next((a for a in addresses if not a.is_loopback), "127.0.0.1"))


def attempt(folders, attempts, **egress):
    result = folders.run(
        ATTEMPTS,
        json.dumps(attempts),
        network=Network.PROXIED,
        egress=Egress(**egress),
        timeout=120,
    )
    assert result.output.startswith("["), result.output
    return json.loads(result.output)


def test_direct_connections_reach_no_service_of_the_machine(folders):
    inet, inet6, unix = int(socket.AF_INET), int(socket.AF_INET6), int(socket.AF_UNIX)
    datagram = int(socket.SOCK_DGRAM)
    abstract = f"\0slipway-test-{os.getpid()}"
    with (
        http_server() as server,
        http_server("0.0.0.0") as everywhere,
        socket.socket(socket.AF_UNIX) as abstract_listener,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
    ):
        abstract_listener.bind(abstract)
        abstract_listener.listen()
        udp.bind(("127.0.0.1", 0))
        attempts = [
            ["connect", [inet, ["127.0.0.1", server.server_port]]],
            ["connect", [inet, ["127.0.0.2", everywhere.server_port]]],
            ["connect", [inet, [own_address(), everywhere.server_port]]],
            ["connect", [inet6, ["::1", server.server_port]]],
            ["connect", [inet6, ["::ffff:127.0.0.1", server.server_port]]],
            ["connect", [inet, ["169.254.169.254", 80]]],
            ["connect", [inet, ["10.255.255.53", 53]]],
            ["connect", [inet, ["127.0.0.1", udp.getsockname()[1]], datagram]],
            ["connect", [inet, ["10.255.255.53", 53], datagram]],
            ["connect", [unix, abstract]],
            ["raw", 1],
            ["raw", 6],
            ["packet", 0],
        ]

        results = attempt(folders, attempts)

        assert len(results) == len(attempts) == 13
        assert "reached" not in results
        assert server.requests == everywhere.requests == []


PRIVATE = [
    "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0", "0.0.0.0", "localhost",
    "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "169.254.169.254", "224.0.0.1",
    "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:169.254.169.254]", "[64:ff9b::7f00:1]",
    "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[::7f00:1]", "[2001:0:7f00:1::]", "[fe80::1]",
    "[fc00::1]", "[fd00:ec2::254]", "[ff02::1]",
]  # fmt: skip


def test_proxy_refuses_addresses_that_are_not_public(folders):
    with http_server() as server:
        port = server.server_port
        hosts = [*PRIVATE, own_address()]
        attempts = [["tunnel", f"{host}:{port}"] for host in hosts]
        # Plain HTTP; `no_proxy` excludes loopback addresses, so they are not among these.
        attempts += [["proxied", f"http://{host}:{port}/"] for host in ("10.0.0.1", "[fd00::1]")]

        results = attempt(folders, attempts)

        assert dict(zip(hosts, results, strict=False)) == dict.fromkeys(hosts, "403")
        assert results[len(hosts) :] == ["403", "403"]
        assert server.requests == []


def test_other_sandboxes_servers_are_unreachable(folders):
    listener = """
    import socket, sys, time
    server = socket.create_server(("0.0.0.0", 45454))
    print("ready", flush=True)
    time.sleep(60)
    """
    policy = folders.policy(network=Network.PROXIED)
    with folders.start(listener, policy=policy, stdout=subprocess.PIPE) as other:
        assert read_line(other.stdout) == b"ready\n"
        inet = int(socket.AF_INET)

        results = attempt(
            folders,
            [["connect", [inet, ["127.0.0.1", 45454]]], ["tunnel", "127.0.0.1:45454"]],
        )

    assert results == ["111", "403"]


def test_operator_allows_networks_hosts_and_forwards(folders):
    with http_server() as server:
        port = server.server_port
        url = f"http://127.0.0.1:{port}/"

        by_network = attempt(folders, [["proxied", url]], networks=("127.0.0.0/8",))
        by_name = attempt(
            folders,
            [["tunnel", f"localhost:{port}"], ["tunnel", f"localhost:{port + 1}"]],
            hosts=(("localhost", port),),
        )
        forward = Forward(port=8000, host="127.0.0.1", host_port=port)
        forwarded = attempt(folders, [["proxied", "http://localhost:8000/x"]], forwards=(forward,))

    assert (by_network, by_name, forwarded) == (["reached"], ["reached", "403"], ["reached"])
    assert server.requests == ["/", "/x"]


def test_own_servers_of_the_agent_keep_working(folders):
    result = folders.run(
        """
        import http.server, threading, urllib.request
        server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/") as response:
            print("status", response.status)
        """,
        network=Network.PROXIED,
    )

    assert result.output.splitlines()[-1] == "status 200"


def test_a_proxy_that_ends_is_replaced_and_serves_the_same_sandboxes(folders):
    script = """
    import sys, urllib.request
    for _ in sys.stdin:
        with urllib.request.urlopen("http://localhost:8000/", timeout=20) as response:
            print(response.status, flush=True)
    """
    with http_server() as server:
        forward = Forward(port=8000, host="127.0.0.1", host_port=server.server_port)
        policy = folders.policy(network=Network.PROXIED, egress=Egress(forwards=(forward,)))
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with folders.start(script, policy=policy, **streams) as process:

            def request():
                process.stdin.write(b"\n")
                process.stdin.flush()
                return process.stdout.readline()

            assert request() == b"200\n"
            first = egress_process._process.pid
            os.kill(first, 9)
            wait_until(lambda: egress_process._process.pid not in (first, None), "a new proxy")
            assert request() == b"200\n"
            process.stdin.close()
            process.stdout.close()


def test_namespace_is_entered_after_the_sandbox_has_a_further_user_namespace(folders):
    """The helper that opens the listening sockets may run before or after bubblewrap's steps."""
    script = "print('ready', flush=True); import time; time.sleep(60)"
    policy = folders.policy(network=Network.PROXIED)
    with folders.start(script, policy=policy, stdout=subprocess.PIPE) as process:
        assert read_line(process.stdout) == b"ready\n"
        inner = next(
            pid
            for pid in usage.process_tree(process.pid)
            if b"time.sleep" in Path(f"/proc/{pid}/cmdline").read_bytes()
            and b"bwrap" not in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
        helper = os.fork()
        if helper == 0:
            status = 1
            try:
                if folders.uid is not None:
                    os.setresuid(folders.uid, folders.uid, folders.uid)
                syscalls.enter_network(inner)
                own, other = (Path(f"/proc/{pid}/ns/net").readlink() for pid in ("self", inner))
                status = 0 if own == other else 2
            finally:
                os._exit(status)
        _, status = os.waitpid(helper, 0)
        process.stdout.close()

    assert status == 0
