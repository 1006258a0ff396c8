"""Having runs stop."""

from __future__ import annotations

from apps.agent_server.consumers.exchange import JSON, Exchange
from apps.agent_server.consumers.joining import JoinsRun
from apps.agent_server.consumers.relaying import own_address, wait_for_end
from apps.agent_server.errors import NothingToCancel, NotOffered
from apps.agent_server.scope import Scope
from apps.agent_server.services import runs
from apps.agent_server.services.runs import Joinable
from apps.core.crossing import in_thread
from apps.organizations.permissions import Permission


class CancelRun(JoinsRun):
    """`POST .../runs/{id}/cancel`: has the run stop; with `wait`, answers when it has."""

    methods = ("POST",)
    on_thread = True
    permission = Permission.AGENTS_RUN
    action = "update"

    async def handle(self, exchange: Exchange) -> None:
        action = exchange.query.get("action", ["interrupt"])[-1]
        scope, run = await in_thread(self.cancel, exchange, action)
        if not exchange.flag("wait"):
            await exchange.start(status=202)
            await exchange.finish()
            return
        place = own_address(exchange)[1].removesuffix(b"/cancel") + b"/join"
        await exchange.start(JSON, (b"location", place))
        if await wait_for_end(exchange, scope, run.run_id, None, cancels=False) is not None:
            await exchange.finish(b"{}")

    def cancel(self, exchange: Exchange, action: str) -> tuple[Scope, Joinable]:
        """Let the caller in and ask the run to stop; for a thread."""
        scope, run = self.find(exchange)
        if action != "interrupt":
            raise NotOffered(f"action '{action}'")
        if run is None or not runs.interrupt(scope, run.run_id):
            raise NothingToCancel
        return scope, run
