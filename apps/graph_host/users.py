"""The user that a project's custom authentication returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

STUDIO = "StudioUser"


class User(dict[str, Any]):
    """A user for graphs and handlers: a mapping whose keys are also attributes, nested ones too.

    It has `identity`, `display_name`, `is_authenticated`, `permissions` and all other fields that
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
        permissions: Sequence[str] = self["permissions"]
        return permissions

    def __getattr__(self, name: str) -> Any:
        try:
            value = self[name]
        except KeyError:
            raise AttributeError(name) from None
        return User(value) if type(value) is dict else value

    # LangGraph's server gives these two to graphs and handlers as well.
    def dict(self) -> Mapping[str, Any]:
        return {**self}

    def model_dump(self) -> Mapping[str, Any]:
        return self.dict()

    def __reduce__(self) -> Any:
        return User, (self.dict(),)


class InvalidUser(ValueError):
    """`@auth.authenticate` returned no valid user."""


def parse_user(returned: Any) -> User:
    """Convert the result of a handler: a user, or a pair of permissions and user.

    A user is an id, a mapping or an object. Raises `InvalidUser`.
    """
    if isinstance(returned, tuple):
        try:
            permissions, user = returned
        except ValueError:
            raise InvalidUser(
                "`@auth.authenticate` must return a user, or a pair of permissions and user."
            ) from None
        return parse_user({**parse_user(user), "permissions": permissions})
    if isinstance(returned, str):
        fields: dict[str, Any] = {"identity": returned}
    elif isinstance(returned, Mapping):
        fields = dict(returned)
    else:
        fields = _read_fields(returned)
    identity = fields.get("identity")
    if not isinstance(identity, str) or not identity:
        raise InvalidUser("`@auth.authenticate` must return a user with a text `identity`.")
    permissions = fields.get("permissions") or []
    if isinstance(permissions, str) or not isinstance(permissions, Sequence):
        raise InvalidUser("`permissions` of a user must be a list of texts.")
    return User(
        {
            **fields,
            "identity": identity,
            "display_name": str(fields.get("display_name") or identity),
            "is_authenticated": bool(fields.get("is_authenticated", True)),
            "permissions": [str(name) for name in permissions],
        }
    )


def _read_fields(user: Any) -> dict[str, Any]:
    dump = getattr(user, "model_dump", None)
    fields = dump() if callable(dump) else dict(getattr(user, "__dict__", {}))
    fields = {name: value for name, value in fields.items() if not name.startswith("_")}
    for name in ("identity", "display_name", "is_authenticated", "permissions"):
        if name not in fields and hasattr(user, name):
            fields[name] = getattr(user, name)
    return fields
