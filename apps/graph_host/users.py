"""Who the project's own authentication says that a caller is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

STUDIO = "StudioUser"


class User(dict[str, Any]):
    """A user as graphs and handlers see one: a mapping whose keys are attributes as well.

    Has `identity`, `display_name`, `is_authenticated` and `permissions`, and whatever else
    `@auth.authenticate` returned.
    """

    @property
    def identity(self) -> str:
        return str(self["identity"])

    @property
    def display_name(self) -> str:
        return str(self["display_name"])

    @property
    def is_authenticated(self) -> bool:
        return bool(self["is_authenticated"])

    @property
    def permissions(self) -> Sequence[str]:
        found: Sequence[str] = self["permissions"]
        return found

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __reduce__(self) -> Any:
        return User, (dict(self),)


class NoUser(ValueError):
    """What `@auth.authenticate` returned is nobody."""


def user_of(returned: Any) -> User:
    """The user that a handler returned: an id, a mapping, or an object. `NoUser` for nobody."""
    if isinstance(returned, str):
        given: dict[str, Any] = {"identity": returned}
    elif isinstance(returned, Mapping):
        given = dict(returned)
    else:
        given = _fields(returned)
    identity = given.get("identity")
    if not isinstance(identity, str) or not identity:
        raise NoUser("`@auth.authenticate` must return a user with a text `identity`.")
    permissions = given.get("permissions") or []
    if isinstance(permissions, str) or not isinstance(permissions, Sequence):
        raise NoUser("`permissions` of a user must be a list of texts.")
    return User(
        {
            **given,
            "identity": identity,
            "display_name": str(given.get("display_name") or identity),
            "is_authenticated": bool(given.get("is_authenticated", True)),
            "permissions": [str(name) for name in permissions],
        }
    )


def _fields(found: Any) -> dict[str, Any]:
    dump = getattr(found, "model_dump", None)
    fields = dump() if callable(dump) else dict(getattr(found, "__dict__", {}))
    fields = {name: value for name, value in fields.items() if not name.startswith("_")}
    for name in ("identity", "display_name", "is_authenticated", "permissions"):
        if name not in fields and hasattr(found, name):
            fields[name] = getattr(found, name)
    return fields
