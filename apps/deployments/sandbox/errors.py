"""Errors raised before sandboxed code runs.

SandboxError
├── InvalidPolicy       the policy is unsafe or impossible
├── SandboxUnavailable  the machine has no isolation, and `allow_unsandboxed` is off
└── SandboxSetupFailed  the sandbox could not be set up; the command did not start
"""

from __future__ import annotations


class SandboxError(Exception):
    """Base of all errors of this package."""


class InvalidPolicy(SandboxError):
    """A policy would open the sandbox or cannot be applied."""


class SandboxUnavailable(SandboxError):
    """The machine has no isolation, and `allow_unsandboxed` is off."""


class SandboxSetupFailed(SandboxError):
    """The kernel or bubblewrap could not set up the sandbox."""
