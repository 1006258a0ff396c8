"""Executes the thread protocol's commands of one caller on one thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

from apps.agent_server import errors
from apps.agent_server.auth.custom_auth import AuthPending
from apps.agent_server.messaging import calls
from apps.agent_server.models import Thread
from apps.agent_server.protocol.events import AgentTree
from apps.agent_server.schemas.base import CheckpointKey, JSONObject
from apps.agent_server.schemas.commands import (
    ChannelRun,
    InputRespond,
    ListCheckpoints,
    MalformedParameters,
    RunStart,
    StateFork,
    StateGet,
    build_run,
)
from apps.agent_server.scope import Scope
from apps.agent_server.services import checkpoints, runs, threads
from apps.agent_server.services.threads import StateSource, ThreadRow
from apps.agent_server.statuses import ThreadStatus
from apps.agent_server.web.http_context import HttpRequestContext
from apps.core.errors import AppError, Forbidden
from apps.core.json import loads, loads_exact
from apps.core.sync_bridge import in_thread
from apps.organizations.permissions import Permission

UNSUPPORTED = frozenset({"input.inject"})
WEBSOCKET_ONLY = frozenset(
    {"subscription.subscribe", "subscription.unsubscribe", "subscription.reconnect"}
)
Handler = Callable[[JSONObject], Awaitable[JSONObject]]


class CommandFailed(Exception):
    """The command failed; `code` is an error code of the protocol."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class BadCommand(Exception):
    """The message is not a command; `command_id` is its id, if it has one."""

    def __init__(self, message: str, command_id: Any = None) -> None:
        super().__init__(message)
        self.command_id = command_id


class CommandHandler:
    """The commands of one connection."""

    def __init__(self, context: HttpRequestContext, thread_id: UUID) -> None:
        self._context = context
        self._thread_id = thread_id
        self.tree = AgentTree()
        self.applied_through = 0
        self.extra: dict[str, Handler] = {}
        """Further commands of this transport."""
        self._handlers: dict[str, Handler] = {
            "run.start": self._start,
            "input.respond": self._respond,
            "agent.getTree": self._tree,
            "state.get": self._get_state,
            "state.listCheckpoints": self._list_checkpoints,
            "state.fork": self._fork,
        }

    async def answer(self, command: Any) -> JSONObject:
        """Execute a command and return the response envelope. Raises `BadCommand`."""
        if not isinstance(command, dict):
            raise BadCommand("A command is a JSON object.")
        command_id = command.get("id")
        if not isinstance(command_id, int) or isinstance(command_id, bool) or command_id < 0:
            raise BadCommand("`id` must be an integer, zero or greater.", command_id)
        method, params = command.get("method"), command.get("params")
        if not isinstance(method, str):
            raise BadCommand("`method` must be a string.", command_id)
        try:
            if not isinstance(params, dict | None):
                raise CommandFailed("invalid_argument", "`params` must be an object.")
            result = await self._execute(method, params or {})
        except CommandFailed as failure:
            return self._envelope(command_id, error=failure.code, message=str(failure))
        except MalformedParameters as error:
            return self._envelope(command_id, error="invalid_argument", message=error.detail)
        except Forbidden as error:
            return self._envelope(command_id, error="permission_denied", message=error.detail)
        except errors.UnknownCheckpoint as error:
            return self._envelope(command_id, error="no_such_checkpoint", message=error.detail)
        except AppError as error:
            message = f"{error.status}: {error.detail}"
            return self._envelope(command_id, error="unknown_error", message=message)
        return self._envelope(command_id, result=result)

    def _envelope(self, command_id: int, **fields: Any) -> JSONObject:
        kind = "success" if "result" in fields else "error"
        meta = {"applied_through_seq": self.applied_through}
        return {"type": kind, "id": command_id, **fields, "meta": meta}

    async def _execute(self, method: str, params: JSONObject) -> JSONObject:
        handler = self.extra.get(method) or self._handlers.get(method)
        if handler is None and method in WEBSOCKET_ONLY:
            raise CommandFailed("not_supported", f"{method} needs a WebSocket.")
        if handler is None and method in UNSUPPORTED:
            raise CommandFailed("not_supported", f"{method} is not supported by this server.")
        if handler is None:
            raise CommandFailed("unknown_command", f"There is no command {method!r}.")
        while True:
            try:
                return await handler(params)
            except AuthPending:
                await self._context.auth_exchange().resolve()

    # Runs

    async def _start(self, params: JSONObject) -> JSONObject:
        run_id = await in_thread(self._start_now, RunStart.check(params))
        return {"run_id": str(run_id)}

    def _start_now(self, params: RunStart) -> UUID:
        run = build_run(
            params.assistant_id,
            input=params.input,
            config=params.config,
            metadata=params.metadata,
            strategy=params.multitask_strategy,
        )
        scope, run = self._authorize_run(run)
        # On an interrupted thread the input resumes the interrupt, unless the run forks the state.
        if params.input is not None and run.checkpoint_id is None and self._has_interrupts(scope):
            changed = {"command": {"resume": params.input}, "input": None}
            run = ChannelRun.check({**run.model_dump(exclude_none=True), **changed})
        return runs.create_on_thread(scope, self._thread_id, run).run_id

    async def _respond(self, params: JSONObject) -> JSONObject:
        await in_thread(self._respond_now, InputRespond.check(params))
        return {}

    def _respond_now(self, params: InputRespond) -> None:
        thread = self._thread(Permission.AGENTS_RUN)
        pending = {interrupt["id"] for interrupt in _pending_interrupts(thread)}
        for response in params.responses:
            if response.interrupt_id not in pending:
                message = f"The thread has no pending interrupt {response.interrupt_id!r}."
                raise CommandFailed("no_such_interrupt", message)
        responses = {entry.interrupt_id: entry.response for entry in params.responses}
        command = {"resume": responses, "update": params.update, "goto": params.goto}
        run = build_run(
            _last_assistant_id(thread),
            command={name: value for name, value in command.items() if value is not None},
            config=params.config,
            metadata=params.metadata,
        )
        scope, run = self._authorize_run(run)
        runs.create_on_thread(scope, self._thread_id, run)

    async def _fork(self, params: JSONObject) -> JSONObject:
        run_id = await in_thread(self._fork_now, StateFork.check(params))
        return {"run_id": str(run_id), "thread_id": str(self._thread_id)}

    def _fork_now(self, params: StateFork) -> UUID:
        thread = self._thread(Permission.AGENTS_RUN)
        run = build_run(
            _last_assistant_id(thread),
            input=params.input,
            config=params.config,
            metadata={},
            checkpoint_id=str(params.checkpoint_id),
        )
        scope, run = self._authorize_run(run)
        return runs.create_on_thread(scope, self._thread_id, run).run_id

    async def _tree(self, _: JSONObject) -> JSONObject:
        tree = self.tree.as_json()
        if tree is None:
            raise CommandFailed(
                "no_such_run", "This connection has not received an event of a run yet."
            )
        return {"tree": tree}

    # States

    async def _get_state(self, params: JSONObject) -> JSONObject:
        query = StateGet.check(params)
        state = await self._call_graph("state", {"checkpoint": _reference(query.namespace)})
        checkpoint = state.get("checkpoint") if state else None
        if checkpoint is None:
            code = "no_such_namespace" if query.namespace else "no_such_checkpoint"
            raise CommandFailed(code, "There is no state yet.")
        values = state["values"]
        if query.keys is not None and isinstance(values, dict):
            values = {name: values[name] for name in query.keys if name in values}
        reference = {"id": checkpoint["checkpoint_id"], "ns": checkpoint.get("checkpoint_ns") or ""}
        return {"values": values, "checkpoint": reference}

    async def _list_checkpoints(self, params: JSONObject) -> JSONObject:
        query = ListCheckpoints.check(params)
        history_params = {
            "limit": query.limit,
            "before": str(query.before) if query.before else None,
            "metadata": None,
            "checkpoint": _reference(query.namespace) if query.namespace else None,
        }
        keys = [CheckpointKey("before", query.before, None)] if query.before else []
        states = await self._call_graph("history", history_params, keys)
        return {"checkpoints": [_summary(state) for state in states or []]}

    async def _call_graph(
        self, method: str, params: JSONObject, keys: Sequence[CheckpointKey] = ()
    ) -> Any:
        scope, source = await in_thread(self._state_source, keys)
        if source.is_blank or source.graph_id is None:
            return None
        thread = Thread(pk=source.pk, thread_id=self._thread_id)
        busy = source.status == ThreadStatus.BUSY
        answer = await calls.call_graph(
            scope.route,
            source.graph_id,
            method,
            {**params, "config": loads(source.config)},
            thread=thread,
            revision_id=source.revision_id if busy else None,
        )
        return loads_exact(answer)

    # Synchronous: called on the thread pool

    def _scope(self, permission: Permission) -> Scope:
        admission = self._context.admit(permission)
        return admission.resolve_scope("threads", "read", thread_id=str(self._thread_id))

    def _authorize_run(self, run: ChannelRun) -> tuple[Scope, ChannelRun]:
        admission = self._context.admit(Permission.AGENTS_RUN)
        return admission.authorize("threads", "create_run", run, thread_id=str(self._thread_id))

    def _thread(self, permission: Permission) -> ThreadRow:
        return threads.get(self._scope(permission), self._thread_id)

    def _has_interrupts(self, scope: Scope) -> bool:
        try:
            thread = threads.get(scope, self._thread_id)
        except errors.ThreadNotFound:
            return False
        return thread.status == ThreadStatus.INTERRUPTED and bool(_pending_interrupts(thread))

    def _state_source(self, keys: Sequence[CheckpointKey]) -> tuple[Scope, StateSource]:
        scope = self._scope(Permission.AGENTS_READ)
        source = threads.get_state_source(scope, self._thread_id)
        checkpoints.require(scope, self._thread_id, keys)
        return scope, source


def _pending_interrupts(thread: ThreadRow) -> list[JSONObject]:
    by_task = loads_exact(thread.interrupts or "{}")
    return [interrupt for of_task in by_task.values() for interrupt in of_task]


def _last_assistant_id(thread: ThreadRow) -> str:
    """The assistant of the thread's latest run."""
    assistant_id = loads(thread.metadata).get("assistant_id")
    if not isinstance(assistant_id, str):
        raise CommandFailed("no_such_run", "The thread has no run yet.")
    return assistant_id


def _reference(namespace: list[str]) -> JSONObject:
    return {"checkpoint_ns": "|".join(namespace), "checkpoint_id": None, "checkpoint_map": None}


def _summary(state: JSONObject) -> JSONObject:
    metadata = state.get("metadata") or {}
    return {
        "id": state["checkpoint"]["checkpoint_id"],
        "timestamp": state["created_at"],
        "step": metadata.get("step", -1),
        "metadata": metadata,
    }
