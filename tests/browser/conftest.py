"""A real Chromium before the real web process's application, over the test's own rows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import uvicorn
from django.contrib.staticfiles import finders
from django.core.cache import cache
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from apps.organizations.models import User, Workspace
from tests.browser.chromium import CHROMIUM
from tests.console.conftest import PASSWORD, person
from tests.factories.organizations import WorkspaceFactory
from tests.installation import free_port, wait_until

PATIENCE_MS = 20_000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = None
    if CHROMIUM is None:
        reason = "there is no Chromium: apt-get install chromium"
    elif finders.find("vendor/htmx.js") is None:
        reason = "static/vendor is empty: npm run vendor"
    for item in items:
        if "tests/browser" not in str(item.path):
            continue
        item.add_marker(pytest.mark.browser)
        item.add_marker(pytest.mark.xdist_group("browser"))
        item.add_marker(pytest.mark.django_db(transaction=True))
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def site(django_db_setup) -> Iterator[str]:
    """The address of the application, with its static files collected."""
    call_command("collectstatic", interactive=False, verbosity=0)
    from apps.core.asgi import AsgiRouter
    from apps.core.wsgi_bridge import WSGIBridge
    from apps.deployments.routing import websocket_routes

    application = AsgiRouter(
        http_routes=[],
        websocket_routes=websocket_routes,
        fallback=WSGIBridge(get_wsgi_application()),
    )
    port = free_port()
    config = uvicorn.Config(
        application, port=port, ws="websockets-sansio", log_config=None, access_log=False
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started, "the web server", seconds=30)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(10)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser a module: while Playwright is there, its event loop runs in this thread.

    Django would refuse its database there, and async tests of other modules their loop.
    """
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Visit:
    """A person at a browser: where they are signed in, and what went wrong on the way."""

    page: Page
    context: BrowserContext
    user: User
    workspace: Workspace
    complaints: list[str]

    @property
    def base(self) -> str:
        return f"/o/{self.workspace.pk}"

    def goto(self, address: str) -> Page:
        """The page there, when its elements are awake."""
        self.page.goto(address)
        return self.awake()

    def awake(self) -> Page:
        self.page.evaluate(
            "Promise.all([...document.querySelectorAll('body :not(:defined)')]"
            ".map(element => customElements.whenDefined(element.localName)))"
        )
        return self.page


@pytest.fixture
def visit(site, chromium) -> Iterator[Visit]:
    """A signed-in editor; the test fails when a page complains in the browser's console."""
    cache.clear()
    workspace = WorkspaceFactory(name="Desk", organization__name="Northwind")
    user = person(workspace, "editor")
    context = chromium.new_context(base_url=site, viewport={"width": 1440, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    sign_in(page, user)
    yield Visit(page, context, user, workspace, complaints)
    context.close()
    # The tests change the viewport and the media; a page that is just being shown notices.
    noticed = "Transition was aborted because of invalid state."
    assert [text for text in complaints if not text.startswith(noticed)] == []


def sign_in(page: Page, user: User) -> None:
    page.goto("/sign-in")
    page.get_by_label("Email").fill(user.email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/projects")
