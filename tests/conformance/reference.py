"""The agent of the A2A kit on the server of the A2A SDK, beside which the platform is measured.

`python -m tests.conformance.reference PORT`; A2A 1.0 and 0.3 at `/`, HTTP+JSON at `/rest`.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

import httpx
import uvicorn
from a2a.helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part
from google.protobuf.json_format import ParseDict
from starlette.applications import Starlette

from tests.conformance.project import scenarios

REST_PREFIX = "/rest"


class KitExecutor(AgentExecutor):
    """Plays the scenarios as the graph of tests/conformance/project does."""

    def __init__(self) -> None:
        self._working: dict[str, asyncio.Task[None]] = {}

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task_id, message, task = context.task_id, context.message, context.current_task
        assert task_id is not None
        assert message is not None
        # For a message with a task alone, the SDK invents a context.
        context_id = (task.context_id if task else context.context_id) or ""
        updater = TaskUpdater(event_queue, task_id, context_id)
        scenario = scenarios.find(message.message_id)
        parts = [ParseDict(part, Part()) for part in scenario.parts]
        if scenario.outcome == "message":
            await event_queue.enqueue_event(updater.new_agent_message(parts))
            return
        if task is None:
            await event_queue.enqueue_event(new_task_from_user_message(message))
        await updater.start_work()
        work = asyncio.create_task(asyncio.sleep(scenario.seconds))
        self._working[task_id] = work
        try:
            await work
        except asyncio.CancelledError:
            return
        finally:
            del self._working[task_id]
        if scenario.outcome == "input-required":
            await updater.requires_input(updater.new_agent_message([Part(text="What next?")]))
            return
        if parts:
            await updater.add_artifact(parts, last_chunk=True)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        task = context.current_task
        assert task is not None
        with suppress(KeyError):
            self._working[task.id].cancel()
        await TaskUpdater(event_queue, task.id, task.context_id).cancel()


def build_card(url: str) -> AgentCard:
    interfaces = [
        AgentInterface(url=f"{url}/", protocol_binding="JSONRPC", protocol_version="1.0"),
        AgentInterface(url=f"{url}/", protocol_binding="JSONRPC", protocol_version="0.3"),
        AgentInterface(
            url=f"{url}{REST_PREFIX}", protocol_binding="HTTP+JSON", protocol_version="1.0"
        ),
    ]
    skill = AgentSkill(id="kit", name="kit", description="Plays the kit's scenarios", tags=["kit"])
    return AgentCard(
        name="kit",
        description="The agent of the A2A kit on the SDK's server",
        version="1",
        supported_interfaces=interfaces,
        capabilities=AgentCapabilities(streaming=True, push_notifications=True),
        default_input_modes=["text/plain", "application/json"],
        default_output_modes=["text/plain", "application/json"],
        skills=[skill],
    )


def build_application(url: str) -> Starlette:
    card = build_card(url)
    configs = InMemoryPushNotificationConfigStore()
    handler = DefaultRequestHandler(
        agent_executor=KitExecutor(),
        task_store=InMemoryTaskStore(),
        agent_card=card,
        push_config_store=configs,
        push_sender=BasePushNotificationSender(httpx.AsyncClient(), configs),
    )
    return Starlette(
        routes=[
            *create_agent_card_routes(card),
            *create_jsonrpc_routes(handler, "/", enable_v0_3_compat=True),
            *create_rest_routes(handler, path_prefix=REST_PREFIX),
        ]
    )


def main() -> None:
    port = int(sys.argv[1])
    application = build_application(f"http://localhost:{port}")
    uvicorn.run(application, port=port, log_level="warning")


if __name__ == "__main__":
    main()
