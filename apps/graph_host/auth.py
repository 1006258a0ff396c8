"""The project's own authentication: `auth.path`, an `Auth` of the LangGraph SDK.

One question of the platform is one request: who is it, and may they do this? Nothing that a handler
does can let somebody in by failing.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl
from uuid import UUID

from .project import Project, ProjectError
from .users import STUDIO, NoUser, User, user_of

_TAKES = frozenset(
    ("request", "path", "method", "path_params", "query_params", "headers", "authorization")
)
_IDS = ("thread_id", "run_id", "assistant_id", "cron_id")


class Headers(dict[bytes, bytes]):
    """A request's headers by their names in lower case; asked by text, it answers text."""

    def __getitem__(self, name: Any) -> Any:
        if isinstance(name, str):
            return super().__getitem__(name.lower().encode("latin-1")).decode("latin-1")
        return super().__getitem__(name)

    def get(self, name: Any, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default

    def __contains__(self, name: object) -> bool:
        key = name.lower().encode("latin-1") if isinstance(name, str) else name
        return super().__contains__(key)


class Guard:
    """The handlers of one project."""

    def __init__(self, auth: Any, what: str) -> None:
        self._authenticate: Callable[..., Awaitable[Any]] | None = getattr(
            auth, "_authenticate_handler", None
        )
        self._handlers: dict[tuple[str, str], list[Any]] = getattr(auth, "_handlers", {})
        self._everything: list[Any] = getattr(auth, "_global_handlers", [])
        if not hasattr(auth, "_global_handlers"):
            raise ProjectError(
                f"{what} is a {type(auth).__name__}; it must be a langgraph_sdk.Auth."
            )
        if self._authenticate is None:
            raise ProjectError(f"{what} has no handler that is decorated with `authenticate`.")
        self._wants = _wants(self._authenticate, what)

    @classmethod
    def of(cls, project: Project) -> Guard | None:
        """The guard that the project names, if it names one."""
        path = (project.config.get("auth") or {}).get("path")
        if not path:
            return None
        return cls(project.load(path, "`auth.path`"), "`auth.path`")

    @property
    def rules(self) -> list[str]:
        """What the `on` handlers decide about: `threads.create`, `threads.*`, `*`."""
        named = [f"{resource}.{action}" for resource, action in self._handlers]
        return sorted([*named, *(["*"] if self._everything else [])])

    async def answer(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Who asks, and whether they may.

        `request` is an ASGI scope in JSON; `user` stands for it when the platform knows already
        who it is. `resource`, `action` and `value` say what is asked for, if anything is. The
        answer has `user` and, where they may, `filters` and `value`; else `refused`.
        """
        user = None
        try:
            user = await self._user(params)
            resource = params.get("resource")
            if resource is None:
                return {"user": user}
            value = _typed(params.get("value") or {})
            result = await self._decide(resource, params["action"], user, value)
        except NoUser as error:
            _print(error)
            return {"refused": {"status": 401, "detail": str(error)}}
        except Exception as error:  # noqa: BLE001  (whatever the author's code raises)
            return {"user": user, "refused": _refusal(error, known=user is not None)}
        if result is False:
            return {"user": user, "refused": {"status": 403, "detail": "Forbidden"}}
        filters = None if result is None or result is True else result
        return {"user": user, "filters": filters, "value": value}

    async def _user(self, params: Mapping[str, Any]) -> User:
        if params.get("user") is not None:
            return User(params["user"])
        if self._authenticate is None:
            raise NoUser("Nobody authenticates.")
        facts = _facts(params["request"], self._wants)
        return user_of(await self._authenticate(**facts))

    async def _decide(self, resource: str, action: str, user: User, value: Any) -> Any:
        """What the most specific handler says; None without one."""
        from langgraph_sdk import Auth  # noqa: PLC0415  (only projects with handlers need it)

        found = self._everything
        for place in ((resource, action), (resource, "*"), ("*", action)):
            if place in self._handlers:
                found = self._handlers[place]
                break
        if not found:
            return None
        known: Any = user
        if user.get("kind") == STUDIO:
            known = Auth.types.StudioUser(user.identity, is_authenticated=True)
        context = Auth.types.AuthContext(
            permissions=user.permissions,
            user=known,
            resource=resource,  # type: ignore[arg-type]
            action=action,  # type: ignore[arg-type]
        )
        return await found[-1](ctx=context, value=value)


def _wants(handler: Callable[..., Any], what: str) -> frozenset[str]:
    """The facts that the handler takes by name."""
    names = []
    for parameter in inspect.signature(handler).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.name in _TAKES:
            names.append(parameter.name)
        elif parameter.default is parameter.empty:
            raise ProjectError(
                f"{what}: `authenticate` takes `{parameter.name}`; it may take "
                f"{', '.join(sorted(_TAKES))}."
            )
    return frozenset(names)


def _facts(request: Mapping[str, Any], wanted: frozenset[str]) -> dict[str, Any]:
    headers = Headers(
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in request["headers"]
    )
    makers: dict[str, Callable[[], Any]] = {
        "request": lambda: _request(request),
        "path": lambda: request["path"],
        "method": lambda: request["method"],
        "path_params": lambda: dict(request.get("path_params") or {}),
        "query_params": lambda: dict(parse_qsl(request.get("query") or "")),
        "headers": lambda: headers,
        "authorization": lambda: headers.get("authorization"),
    }
    return {name: makers[name]() for name in wanted}


def _request(given: Mapping[str, Any]) -> Any:
    """The request as Starlette has it; `ProjectError` where the project does not bring that."""
    try:
        from starlette.requests import Request  # noqa: PLC0415  (the project's, where it has one)
    except ImportError:
        raise ProjectError(
            "`authenticate` takes `request`, which needs starlette among `dependencies`."
        ) from None
    path = given["path"]
    headers = [(n.lower().encode("latin-1"), v.encode("latin-1")) for n, v in given["headers"]]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": given["method"],
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": (given.get("query") or "").encode("latin-1"),
        "headers": headers,
        "path_params": dict(given.get("path_params") or {}),
        "scheme": given.get("scheme") or "http",
        "server": tuple(given.get("server") or ("localhost", 80)),
        "client": tuple(given.get("client") or ("", 0)),
    }
    return Request(scope)


def _typed(value: dict[str, Any]) -> dict[str, Any]:
    """What is asked for, with ids and namespaces in the types that handlers are promised."""
    for name in _IDS:
        value[name] = _uuid(value[name]) if value.get(name) else value.get(name)
        if value[name] is None:
            del value[name]
    if isinstance(value.get("ids"), list):
        value["ids"] = [_uuid(given) for given in value["ids"]]
    for name in ("namespace", "suffix"):
        if isinstance(value.get(name), list):
            value[name] = tuple(value[name])
    return value


def _uuid(text: Any) -> Any:
    try:
        return UUID(text)
    except (ValueError, TypeError, AttributeError):
        return text


def _refusal(error: Exception, *, known: bool) -> dict[str, Any]:
    """What the caller is told: the handler's own words if it meant to refuse, else no secrets."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and 400 <= status < 600:
        headers = getattr(error, "headers", None) or {}
        return {
            "status": status,
            "detail": str(getattr(error, "detail", "") or "Refused"),
            "headers": {str(name): str(value) for name, value in headers.items()},
        }
    _print(error)
    what = "authorization" if known else "authentication"
    return {
        "status": 403 if known else 401,
        "detail": f"The agent's {what} failed: {type(error).__name__}",
    }


def _print(error: Exception) -> None:
    traceback.print_exception(error)
