"""The proxy as a sandbox sees it: its port and the environment variables that name it."""

from __future__ import annotations

import ipaddress

from apps.deployments.sandbox.policy import Egress, Network, Policy

# Outside the range of ephemeral ports, so that agent code is not given it by chance.
PORT = 61080
URL = f"http://127.0.0.1:{PORT}"
MAX_LISTENERS = 8
_LOOPBACK = ipaddress.ip_network("127.0.0.0/8")
_OWN_SERVERS = "localhost,127.0.0.1,::1"


def listen_ports(policy: Policy) -> list[int]:
    """Return the ports that the platform listens on inside the sandbox, the proxy's first."""
    if policy.network is not Network.PROXIED:
        return []
    return [PORT, *(forward.port for forward in policy.egress.forwards)]


def variables(egress: Egress) -> dict[str, str]:
    """Return the variables by which HTTP libraries find the proxy."""
    # Not ALL_PROXY: httpx loads the certificates again for each variable, 50 ms per client.
    result = {"all_proxy": "", "ALL_PROXY": ""}
    for name in ("http_proxy", "https_proxy"):
        result[name] = result[name.upper()] = URL
    networks = [ipaddress.ip_network(network) for network in egress.networks]
    # Servers on the host's loopback address are behind the proxy, the agent's own are not.
    leads_to_host = any(
        network.version == 4 and network.overlaps(_LOOPBACK) for network in networks
    )
    direct = _OWN_SERVERS if egress.has_own_servers and not leads_to_host else ""
    return result | {"no_proxy": direct, "NO_PROXY": direct, "NODE_USE_ENV_PROXY": "1"}
