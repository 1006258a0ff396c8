"""The project's custom authentication: `auth.path`, an `Auth` of the LangGraph SDK.

Each call of the platform authenticates a request and optionally authorizes one action. A handler
that fails denies access.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl
from uuid import UUID

from .failure_log import log_failure
from .project import AgentProject, ProjectError
from .users import STUDIO, InvalidUser, User, parse_user

_HANDLER_PARAMETERS = frozenset(
    ("request", "path", "method", "path_params", "query_params", "headers", "authorization")
)
_IDS = ("thread_id", "run_id", "assistant_id", "cron_id")


class RequestHeaders(dict[bytes, bytes]):
    """Request headers by lower-case name; a `str` key returns `str`, a `bytes` key `bytes`."""

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


class AuthRunner:
    """Runs the authentication and authorization handlers of one project."""

    def __init__(self, auth: Any, source: str) -> None:
        self._authenticate: Callable[..., Any] | None = getattr(auth, "_authenticate_handler", None)
        self._handlers: dict[tuple[str, str], list[Any]] = getattr(auth, "_handlers", {})
        self._global_handlers: list[Any] = getattr(auth, "_global_handlers", [])
        if not hasattr(auth, "_global_handlers"):
            raise ProjectError(
                f"{source} is a {type(auth).__name__}; it must be a langgraph_sdk.Auth."
            )
        if self._authenticate is None:
            raise ProjectError(f"{source} has no handler that is decorated with `authenticate`.")
        self._parameters = _parameter_names(self._authenticate, source)

    @classmethod
    def load(cls, project: AgentProject) -> AuthRunner | None:
        """Load the handlers of the project's `auth.path`, if it has one."""
        path = (project.config.get("auth") or {}).get("path")
        if not path:
            return None
        return cls(project.load(path, "`auth.path`"), "`auth.path`")

    @property
    def rules(self) -> list[str]:
        """The actions that have `on` handlers: `threads.create`, `threads.*`, `*`."""
        handled = [f"{resource}.{action}" for resource, action in self._handlers]
        return sorted([*handled, *(["*"] if self._global_handlers else [])])

    async def execute(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Authenticate the caller and authorize an action.

        `request` is an ASGI scope as JSON; if the platform knows the user already, `user` replaces
        it. `resource`, `action` and `value` describe the action, if any. The result has `user` and,
        if authorized, `filters` and `value`; otherwise `refused`.
        """
        user = None
        try:
            user = await self._authenticate_user(params)
            resource = params.get("resource")
            if resource is None:
                return {"user": user}
            value = _convert_types(params.get("value") or {})
            result = await self._authorize(resource, params["action"], user, value)
        except InvalidUser as error:
            log_failure(error, "authentication")
            return {"refused": {"status": 401, "detail": str(error)}}
        except Exception as error:  # noqa: BLE001  (whatever the author's code raises)
            return {"user": user, "refused": _refusal(error, is_authenticated=user is not None)}
        if result is False:
            return {"user": user, "refused": {"status": 403, "detail": "Forbidden"}}
        filters = None if result is None or result is True else result
        return {"user": user, "filters": filters, "value": value}

    async def _authenticate_user(self, params: Mapping[str, Any]) -> User:
        if params.get("user") is not None:
            return User(params["user"])
        if self._authenticate is None:
            raise InvalidUser("There is no `authenticate` handler.")
        arguments = _handler_arguments(params["request"], self._parameters)
        if inspect.iscoroutinefunction(self._authenticate):
            return parse_user(await self._authenticate(**arguments))
        # An ordinary function may block: it runs in a thread, as in LangGraph's server.
        returned = await asyncio.to_thread(self._authenticate, **arguments)
        return parse_user(await returned if inspect.isawaitable(returned) else returned)

    async def _authorize(self, resource: str, action: str, user: User, value: Any) -> Any:
        """Return the result of the most specific handler; None without a handler."""
        from langgraph_sdk import Auth  # noqa: PLC0415  (only projects with handlers need it)

        handlers = self._global_handlers
        for key in ((resource, action), (resource, "*"), ("*", action)):
            if key in self._handlers:
                handlers = self._handlers[key]
                break
        if not handlers:
            return None
        context_user: Any = user
        if user.get("kind") == STUDIO:
            context_user = Auth.types.StudioUser(user.identity, is_authenticated=True)
        context = Auth.types.AuthContext(
            permissions=user.permissions,
            user=context_user,
            resource=resource,  # type: ignore[arg-type]
            action=action,  # type: ignore[arg-type]
        )
        return await handlers[-1](ctx=context, value=value)


def _parameter_names(handler: Callable[..., Any], source: str) -> frozenset[str]:
    """Return the names of the parameters that the handler takes. Raises `ProjectError`."""
    names = []
    for parameter in inspect.signature(handler).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.name in _HANDLER_PARAMETERS:
            names.append(parameter.name)
        elif parameter.default is parameter.empty:
            raise ProjectError(
                f"{source}: `authenticate` takes `{parameter.name}`; it may take "
                f"{', '.join(sorted(_HANDLER_PARAMETERS))}."
            )
    return frozenset(names)


def _handler_arguments(request: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    headers = RequestHeaders(
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in request["headers"]
    )
    builders: dict[str, Callable[[], Any]] = {
        "request": lambda: _build_request(request),
        "path": lambda: request["path"],
        "method": lambda: request["method"],
        "path_params": lambda: dict(request.get("path_params") or {}),
        "query_params": lambda: dict(parse_qsl(request.get("query") or "")),
        "headers": lambda: headers,
        "authorization": lambda: headers.get("authorization"),
    }
    return {name: builders[name]() for name in names}


def _build_request(scope_json: Mapping[str, Any]) -> Any:
    """Build a Starlette request. Raises `ProjectError` if Starlette is not installed."""
    try:
        from starlette.requests import Request  # noqa: PLC0415  (a dependency of the project)
    except ImportError:
        raise ProjectError(
            "`authenticate` takes `request`, which needs starlette among `dependencies`."
        ) from None
    path = scope_json["path"]
    headers = [(n.lower().encode("latin-1"), v.encode("latin-1")) for n, v in scope_json["headers"]]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": scope_json["method"],
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": (scope_json.get("query") or "").encode("latin-1"),
        "headers": headers,
        "path_params": dict(scope_json.get("path_params") or {}),
        "scheme": scope_json.get("scheme") or "http",
        "server": tuple(scope_json.get("server") or ("localhost", 80)),
        "client": tuple(scope_json.get("client") or ("", 0)),
    }
    return Request(scope)


def _convert_types(value: dict[str, Any]) -> dict[str, Any]:
    """Convert ids and namespaces to the types that handlers expect."""
    for name in _IDS:
        value[name] = _parse_uuid(value[name]) if value.get(name) else value.get(name)
        if value[name] is None:
            del value[name]
    if isinstance(value.get("ids"), list):
        value["ids"] = [_parse_uuid(id_) for id_ in value["ids"]]
    for name in ("namespace", "suffix"):
        if isinstance(value.get(name), list):
            value[name] = tuple(value[name])
    return value


def _parse_uuid(text: Any) -> Any:
    try:
        return UUID(text)
    except (ValueError, TypeError, AttributeError):
        return text


def _refusal(error: Exception, *, is_authenticated: bool) -> dict[str, Any]:
    """Return the handler's own HTTP error, or a generic one that reveals no details."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and 400 <= status < 600:
        headers = getattr(error, "headers", None) or {}
        return {
            "status": status,
            "detail": str(getattr(error, "detail", "") or "Refused"),
            "headers": {str(name): str(value) for name, value in headers.items()},
        }
    if is_authenticated and isinstance(error, AssertionError) and str(error):
        # LangGraph's examples refuse by assertion; the message is for the caller.
        return {"status": 403, "detail": str(error)}
    step = "authorization" if is_authenticated else "authentication"
    log_failure(error, step)
    return {
        "status": 403 if is_authenticated else 401,
        "detail": f"The agent's {step} failed: {type(error).__name__}",
    }
