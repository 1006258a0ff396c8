"""Attacks on the network of a machine, by isolation mode: a program for a network namespace.

    unshare --net /usr/bin/python3 -m tests.sandbox.network_attacks [UID]

The namespace has stand-ins for services on the loopback address, on private networks and at the
metadata address, and a name server whose answers change. Nothing is sent outside of it: it has no
other interface. Prints what each attempt got, by mode, as JSON.
"""

from __future__ import annotations

import http.server
import json
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from unittest import mock

from apps.deployments.sandbox import (
    Capability,
    Egress,
    InvalidPolicy,
    Mode,
    Network,
    Policy,
    SandboxUnavailable,
    capability,
    launcher,
    prepare_dir,
    probe,
    spawn,
)

AGENT_UID = 1_000_007
PORT, DATAGRAM_PORT, OTHER_AGENT_PORT = 8080, 5300, 45454
ADDRESSES = (
    *("127.0.0.1", "127.0.0.2", "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1"),
    *("169.254.169.254", "::1", "::ffff:127.0.0.1", "fd00:ec2::254"),
)
# Other spellings and embedded addresses, for the proxy.
SPELLINGS = (
    *("127.1", "2130706433", "0x7f000001", "0", "0.0.0.0", "localhost", "[::]"),
    *("[::ffff:169.254.169.254]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::7f00:1]"),
)
# The answers of the name server, in turn; the last one repeats.
NAMES = {
    "private.attack": ["10.0.0.1"],
    "metadata.attack": ["169.254.169.254"],
    "mixed.attack": ["203.0.113.7 127.0.0.1"],
    "rebinding.attack": ["203.0.113.7", "127.0.0.1"],
}
ABSTRACT = "\0slipway-network-attacks"

AGENT = r"""
import ctypes, json, os, socket, sys
attempts = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)

def tcp(host, port):
    socket.create_connection((host, port), timeout=3).close()

def udp(host, port):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.settimeout(1)
        sender.connect((host, port))
        sender.send(b"x")
        sender.recv(1)

def abstract(name):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(name)

def raw(family, kind):
    socket.socket(family, socket.SOCK_RAW, kind).close()

def proxy(authority):
    with socket.create_connection(("127.0.0.1", 61080), timeout=20) as client:
        client.sendall(f"CONNECT {authority} HTTP/1.1\r\n\r\n".encode())
        status = client.recv(100).split(b" ")[1].decode()
    if status != "200":
        raise OSError(status)

def plain(url):
    with socket.create_connection(("127.0.0.1", 61080), timeout=20) as client:
        client.sendall(f"GET {url} HTTP/1.1\r\n\r\n".encode())
        status = client.recv(100).split(b" ")[1].decode()
    if status != "200":
        raise OSError(status)

def namespace(number):
    if libc.unshare(number):
        raise OSError(ctypes.get_errno(), "unshare")

def join(pid):
    descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    if libc.setns(descriptor, 0x40000000):
        raise OSError(ctypes.get_errno(), "setns")

def read(path):
    open(path).read()

def kill(pid):
    os.kill(pid, 0)

def root():
    os.setuid(0)

results = {}
for name, *arguments in attempts:
    label = " ".join(map(str, [name, *arguments])).replace("\0", "@")
    label += " again" if label in results else ""
    try:
        globals()[name](*arguments)
        results[label] = "reached"
    except OSError as error:
        results[label] = str(error.args[-1] if not error.errno else error.strerror)
print(json.dumps(results))
"""


def list_attempts(secret: Path) -> list[list[object]]:
    """Return the attempts of the malicious agent or build step."""
    attempts: list[list[object]] = [["tcp", address, PORT] for address in ADDRESSES]
    attempts += [["udp", address, DATAGRAM_PORT] for address in ("127.0.0.1", "10.0.0.1", "::1")]
    attempts += [["abstract", ABSTRACT], ["tcp", "127.0.0.1", OTHER_AGENT_PORT]]
    attempts += [["raw", int(socket.AF_INET), 1], ["raw", int(socket.AF_INET), 6]]
    attempts += [["raw", int(socket.AF_INET6), 58], ["raw", int(socket.AF_PACKET), 3]]
    hosts = [f"[{address}]" if ":" in address else address for address in ADDRESSES]
    attempts += [["proxy", f"{host}:{PORT}"] for host in (*hosts, *SPELLINGS, *NAMES)]
    attempts += [["proxy", f"rebinding.attack:{PORT}"], ["proxy", f"127.0.0.1:{OTHER_AGENT_PORT}"]]
    attempts += [["plain", f"http://{host}:{PORT}/"] for host in (*hosts, "rebinding.attack")]
    # A user namespace with a network namespace, a network namespace, and that of other processes.
    attempts += [["namespace", 0x50000000], ["namespace", 0x40000000], ["join", 1]]
    return [*attempts, ["read", str(secret)], ["kill", os.getpid()], ["root"]]


class _Service(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
    daemon_threads = True
    reached: Counter[str]


class _Handler(http.server.BaseHTTPRequestHandler):
    def setup(self) -> None:
        self.server.reached[self.client_address[0]] += 1  # type: ignore[attr-defined]
        super().setup()

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def serve_everywhere() -> _Service:
    """Serve TCP, datagrams and an abstract socket on all addresses."""
    for address in (*ADDRESSES, *name_servers()):
        if not address.startswith(("127.", "::")):
            prefix = "128" if ":" in address else "32"
            subprocess.run(["ip", "address", "add", f"{address}/{prefix}", "dev", "lo"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    service = _Service(("::", PORT), _Handler, bind_and_activate=False)
    service.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    service.reached = Counter()
    service.server_bind()
    service.server_activate()
    threading.Thread(target=service.serve_forever, daemon=True).start()
    datagrams = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    datagrams.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    datagrams.bind(("::", DATAGRAM_PORT))
    threading.Thread(target=echo, args=[datagrams], daemon=True).start()
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(ABSTRACT)
    abstract.listen()
    threading.Thread(target=accept, args=[abstract], daemon=True).start()
    for address in name_servers():
        resolver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        resolver.bind((address, 53))
        threading.Thread(target=answer_names, args=[resolver], daemon=True).start()
    return service


def echo(datagrams: socket.socket) -> None:
    while True:
        data, sender = datagrams.recvfrom(100)
        datagrams.sendto(data, sender)


def accept(listener: socket.socket) -> None:
    while True:
        listener.accept()[0].close()


def name_servers() -> list[str]:
    text = Path("/etc/resolv.conf").read_text()
    servers = re.findall(r"^nameserver (\S+)", text, re.MULTILINE)
    return [server for server in servers if ":" not in server]


def answer_names(resolver: socket.socket) -> None:
    """Answer questions for the addresses of `NAMES`; other names and types have no answer."""
    question_counts: Counter[str] = Counter()
    while True:
        question, client = resolver.recvfrom(512)
        labels, position = [], 12
        while length := question[position]:
            labels.append(question[position + 1 : position + 1 + length].decode())
            position += 1 + length
        (kind,) = struct.unpack_from(">H", question, position + 1)
        answers = NAMES.get(name := ".".join(labels), []) if kind == 1 else []
        addresses = answers[min(question_counts[name], len(answers) - 1)].split() if answers else []
        question_counts[name] += bool(answers)
        records = b"".join(
            struct.pack(">HHHIH", 0xC00C, 1, 1, 0, 4) + socket.inet_aton(address)
            for address in addresses
        )
        header = question[:2] + struct.pack(">HHHHH", 0x8180, 1, len(addresses), 0, 0)
        resolver.sendto(header + question[12 : position + 5] + records, client)


def make_policy(folder: Path, *, is_build: bool) -> Policy:
    """Return the policy of an agent, or of a build step, which writes its own folder."""
    source = prepare_dir(folder / "source", uid=AGENT_UID)
    return Policy(
        cwd=source,
        read_only=() if is_build else (source,),
        writable=(source,) if is_build else (),
        uid=AGENT_UID,
        network=Network.PROXIED,
        egress=Egress(),
    )


def attack(isolation: Capability, folder: Path, *, is_build: bool) -> dict[str, str]:
    """Run the malicious agent or build step and return what each attempt got."""
    policy = make_policy(folder, is_build=is_build)
    attempts = list_attempts(folder / "secret")
    command = [str(Path(sys.executable).resolve()), "-I", "-S", "-c"]
    listener = f"import socket, time; s = socket.create_server(('', {OTHER_AGENT_PORT}))"
    other = [*command, f"{listener}; print(flush=True); time.sleep(120)"]
    with (
        launcher.start(policy, other, isolation=isolation, stdout=subprocess.PIPE) as neighbour,
        launcher.start(
            policy,
            [*command, AGENT, json.dumps(attempts)],
            isolation=isolation,
            stdout=subprocess.PIPE,
        ) as process,
    ):
        assert neighbour.stdout is not None
        assert process.stdout is not None
        neighbour.stdout.readline()
        process.wait(120)
        results: dict[str, str] = json.loads(process.stdout.read())
        neighbour.kill()
    return results


def refuse_start(isolation: Capability, folder: Path, *, is_build: bool) -> dict[str, str]:
    """Return the attempts with the reason why none of them is made on such a machine."""
    policy = replace(make_policy(folder, is_build=is_build), python=None)
    try:
        if isolation.is_isolated:
            launcher.start(policy, ["/bin/true"], isolation=isolation)
        else:
            with mock.patch.object(capability, "probe", return_value=isolation):
                spawn(policy, ["/bin/true"])
    except (InvalidPolicy, SandboxUnavailable) as error:
        attempts = list_attempts(folder / "secret")
        return {
            f"{number} {' '.join(map(str, attempt))}": str(error)
            for number, attempt in enumerate(attempts)
        }
    return {"start": "reached"}


def main() -> None:
    service = serve_everywhere()
    is_reachable = all(
        socket.create_connection((address, PORT), timeout=3) for address in ADDRESSES
    )
    while service.reached.total() < len(ADDRESSES):
        time.sleep(0.01)
    service.reached.clear()
    user = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    user_name = "ordinary user" if user else "root"
    isolation = probe()
    with tempfile.TemporaryDirectory(prefix="network-attacks-") as name:
        folder = Path(name).resolve()
        (folder / "secret").write_text("secret of the platform")
        (folder / "secret").chmod(0o600)
        folder.chmod(0o711)
        modes = {}
        for is_build, role in ((False, "agent"), (True, "build")):
            modes[f"{user_name}, bubblewrap, {role}"] = attack(isolation, folder, is_build=is_build)
            others = [Capability(Mode.NONE, "This machine offers nothing.")]
            # Without namespaces, Landlock isolates the agents of a platform that runs as root.
            others += [] if user else [Capability(Mode.LANDLOCK, "")]
            for other in others:
                modes[f"{user_name}, {other.mode.value}, {role}"] = refuse_start(
                    other, folder, is_build=is_build
                )
        reached = dict(service.reached)
    print(json.dumps({"reachable": is_reachable, "reached": reached, "modes": modes}))  # noqa: T201


if __name__ == "__main__":
    main()
