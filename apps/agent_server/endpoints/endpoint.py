"""The declaration of a route: method, path, permission, inputs, response, and the function.

Routing, validation, error texts and the OpenAPI document all come from it. A function names its
inputs in its signature, which is read once, at import:

    @threads.patch("/threads/{thread_id}", response=responses.Thread)
    def update(context: HttpRequestContext, thread_id: UUID, body: ThreadChanges) -> Response:

A path parameter of type `UUID` is validated. `body` and `query` are parsed with the model of their
annotation, `raw_body` is passed unparsed. The function is synchronous and runs after admission,
in one crossing from the event loop. It returns a `Response`, or a continuation: a coroutine
function that awaits a graph, a model or a run on the event loop and sends or returns the response.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar, get_args, get_origin, get_type_hints
from uuid import UUID

from apps.agent_server.auth.access import require_deployed
from apps.agent_server.auth.custom_auth import AuthPending
from apps.agent_server.errors import InvalidId
from apps.agent_server.schemas.base import Body, Query
from apps.agent_server.web.http_context import HttpRequestContext, Response
from apps.core import errors
from apps.core.http.body_memory import MemoryOwner, body_memory_budget, caller_share
from apps.core.http.middleware import as_app_error
from apps.core.json import dumps
from apps.core.request_context import RequestContext, agent_audience, enter
from apps.core.sync_bridge import in_thread
from apps.organizations.permissions import Permission

log = logging.getLogger(__name__)

Continuation = Callable[[HttpRequestContext], Awaitable[Response | None]]
Result = Response | Continuation
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Result])

JSON = "application/json"
EVENT_STREAM = "text/event-stream"
_PARAMETER = re.compile(r"{(\w+)}")


class Endpoint:
    """One method of one path."""

    def __init__(
        self,
        method: str,
        path: str,
        function: Callable[..., Result],
        *,
        tag: str,
        permission: Permission | None = None,
        is_public: bool = False,
        runs_on_loop: bool = False,
        invalid_id: Callable[[str], errors.AppError] = InvalidId,
        is_body_optional: bool = False,
        raw_body_model: Any = None,
        response: Any = None,
        status: int = 200,
        media: str = JSON,
        other_statuses: Mapping[int, str] | None = None,
        aliases: tuple[str, ...] = (),
        challenge: Callable[[HttpRequestContext], str | None] | None = None,
        is_audience: bool = False,
    ) -> None:
        """`path` is below the agent's address: `/threads/{thread_id}`.

        - `permission` defaults to `agents:read` for GET and `agents:run` for other methods;
          `is_public` admits callers without a key.
        - `runs_on_loop`: the function only executes prepared statements, see `run_on_loop`.
        - `invalid_id` is the error of a path parameter that is not a UUID.
        - `is_body_optional`: an empty body counts as `{}`.
        - `raw_body_model`, `response`, `status`, `media` and `other_statuses` (successes without
          a schema) only document the endpoint: the model of a `raw_body`, and the response's
          model, `Any` for any JSON or None for no body.
        - `aliases` are further paths with the same parameters, which are not documented.
        - `challenge` returns the `WWW-Authenticate` of a 401, which tells clients how to sign in.
        - `is_audience`: it accepts the keys that are for the agent's MCP server only.
        """
        self.method, self.path, self.function = method, path, function
        self.aliases, self._challenge, self._is_audience = aliases, challenge, is_audience
        self.tag, self.is_public, self.runs_on_loop = tag, is_public, runs_on_loop
        default = Permission.AGENTS_READ if method == "GET" else Permission.AGENTS_RUN
        self.permission = permission or default
        self.response, self.status, self.media = response, status, media
        self.other_statuses = other_statuses or {}
        self.parameters: tuple[str, ...] = tuple(_PARAMETER.findall(path))
        # The name of the route in metrics and in the access tests.
        self.route = "agents/<slug:slug>" + _PARAMETER.sub(r"<str:\1>", path.rstrip("/"))

        hints = get_type_hints(function)
        self.responds_at_once = hints["return"] is Response
        self.id_parameters = tuple(name for name in self.parameters if hints[name] is UUID)
        self.text_parameters = tuple(name for name in self.parameters if hints[name] is str)
        self.query: type[Query] | None = hints.get("query")
        self.body: Any = raw_body_model or hints.get("body")
        self.reads_body = bool({"body", "raw_body"} & hints.keys())
        self._takes_raw_body = "raw_body" in hints
        self._parse_body = _body_parser(hints.get("body"), is_optional=is_body_optional)
        self._invalid_id = invalid_id
        inputs = {*self.id_parameters, *self.text_parameters, *hints} - {"context", "return"}
        declared = {*self.parameters, "query", "body", "raw_body"}
        if inputs - declared or set(inspect.signature(function).parameters) - inputs != {"context"}:
            raise TypeError(f"{method} {path}: {function.__name__} has undeclared parameters.")

    async def __call__(self, context: HttpRequestContext) -> None:
        """Answer the request."""
        client = context.scope.get("client")
        audience = agent_audience(context.path_params["slug"]) if self._is_audience else ""
        ip = client[0] if client else None
        enter(RequestContext(ip, context.request_id, audience=audience))
        try:
            response = await self._respond(context)
            if response is not None:
                await context.send(response)
        except ConnectionError:
            return
        except Exception as exception:
            error = as_app_error(exception)
            if error is None:
                log.exception("%s %s failed", self.method, self.path)
                error = errors.AppError()
            if context.is_started:
                # The status is sent: a truncated response tells the client of the failure.
                raise
            if isinstance(error, errors.Unauthenticated) and self._challenge is not None:
                text = self._challenge(context)
                error.headers = error.headers if text is None else {"WWW-Authenticate": text}
            await context.send_error(error)

    async def _respond(self, context: HttpRequestContext) -> Response | None:
        if self.reads_body:
            with body_memory_budget.reserve() as reservation:
                await context.read_body(reservation, partial(self._authenticate, context))
                result = await self._run(self._call, context)
                context.body = b""  # a stream may last for hours
        else:
            result = await self._run(self._call, context)
        return result if isinstance(result, Response) else await result(context)

    async def _authenticate(self, context: HttpRequestContext) -> MemoryOwner:
        """Admit the sender of a large body; return the organization that the bytes count to."""
        return caller_share(await self._run(self._admit_sender, context))

    def _admit_sender(self, context: HttpRequestContext) -> UUID:
        return context.admit(self.permission).route.organization_id

    async def _run(
        self, function: Callable[[HttpRequestContext], T], context: HttpRequestContext
    ) -> T:
        """Call the function, again after each answer of the agent's authentication code."""
        while True:
            try:
                if self.runs_on_loop:
                    return await context.run_service(function, context)
                return await in_thread(function, context)
            except AuthPending:
                await context.auth_exchange().resolve()

    def _call(self, context: HttpRequestContext) -> Result:
        """Admit the caller, validate path, body and query, and call the function."""
        if self.is_public:
            require_deployed(context.path_params["slug"])
        else:
            context.admit(self.permission)
        inputs: dict[str, Any] = {}
        for name in self.id_parameters:
            inputs[name] = context.path_uuid(name, self._invalid_id)
        for name in self.text_parameters:
            inputs[name] = context.path_params[name]
        if self._parse_body is not None:
            inputs["body"] = self._parse_body(context.body)
        elif self._takes_raw_body:
            inputs["raw_body"] = context.body
        if self.query is not None:
            inputs["query"] = self.query.parse(context.query)
        return self.function(context, **inputs)


def _body_parser(annotation: Any, *, is_optional: bool) -> Callable[[bytes], Any] | None:
    """The function that parses a body of `Model` or `list[Model]`."""
    if annotation is None:
        return None
    if get_origin(annotation) is list:
        [element] = get_args(annotation)
        parse_list: Callable[[bytes], Any] = element.parse_list
        return parse_list
    model: type[Body] = annotation
    return (lambda raw: model.parse(raw or b"{}")) if is_optional else model.parse


class EndpointGroup:
    """The endpoints of one resource; its methods are decorators that declare them."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._endpoints: list[Endpoint] = []

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(self._endpoints)

    def declare(self, method: str, path: str, **options: Any) -> Callable[[F], F]:
        """Declare the function as an endpoint; for `options` see `Endpoint`."""

        def add(function: F) -> F:
            self._endpoints.append(
                Endpoint(method, path, function, **{"tag": self._tag, **options})
            )
            return function

        return add

    def get(self, path: str, **options: Any) -> Callable[[F], F]:
        return self.declare("GET", path, **options)

    def post(self, path: str, **options: Any) -> Callable[[F], F]:
        return self.declare("POST", path, **options)

    def put(self, path: str, **options: Any) -> Callable[[F], F]:
        return self.declare("PUT", path, **options)

    def patch(self, path: str, **options: Any) -> Callable[[F], F]:
        return self.declare("PATCH", path, **options)

    def delete(self, path: str, **options: Any) -> Callable[[F], F]:
        return self.declare("DELETE", path, **{"status": 204, **options})


def json_response(value: Any, *headers: tuple[bytes, bytes]) -> Response:
    return Response(dumps(value), headers=headers)


def page_response(rows: list[dict[str, Any]], offset: int, *, has_more: bool) -> Response:
    """A page of rows: a bare list, with headers that name the next offset."""
    end = offset + len(rows)
    headers = [(b"x-pagination-total", b"%d" % (end + has_more))]
    if has_more:
        headers.append((b"x-pagination-next", b"%d" % end))
    return Response(dumps(rows), headers=headers)
