"""What can go wrong before sandboxed code runs.

SandboxError
├── PolicyRefused       the policy itself is unsafe or impossible
├── SandboxUnavailable  this machine offers no isolation, and running without was not allowed
└── SandboxFailed       the sandbox could not be set up; nothing of the command ran
"""

from __future__ import annotations


class SandboxError(Exception):
    """Base of all errors of this package."""


class PolicyRefused(SandboxError):
    """A policy asks for something that would open the sandbox."""


class SandboxUnavailable(SandboxError):
    """No isolation on this machine, and `allow_unsandboxed` was not given."""


class SandboxFailed(SandboxError):
    """The kernel or bubblewrap refused to build the sandbox."""
