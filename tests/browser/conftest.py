"""Fixtures: a Chromium browser and the web application over the rows of the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn
from django.conf import settings
from django.contrib.staticfiles import finders
from django.core.cache import cache
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from django.test import Client
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Page,
    ViewportSize,
    expect,
    sync_playwright,
)

from apps.organizations.models import User, Workspace
from tests.browser.chromium import CHROMIUM_PATH
from tests.console.conftest import create_workspace_user
from tests.factories.organizations import WorkspaceFactory
from tests.installation import free_port, wait_until
from tests.required_tools import skip_without

DEFAULT_TIMEOUT_MS = 60_000
VIEWPORT: ViewportSize = {"width": 1440, "height": 900}
PAGE_STATE = Path(__file__).with_name("page_state.js")
# The root element in two states that PAGE_STATE describes.
LOADED = "html[data-test-loaded]"
SETTLED = "html[data-test-settled]"


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = None
    if CHROMIUM_PATH is None:
        reason = "Chromium is not installed: apt-get install chromium-headless-shell"
    elif finders.find("vendor/htmx.js") is None:
        reason = "static/vendor is empty: npm run vendor"
    for item in items:
        if "tests/browser" not in str(item.path):
            continue
        item.add_marker(pytest.mark.browser)
        item.add_marker(pytest.mark.xdist_group("browser"))
        item.add_marker(pytest.mark.django_db(transaction=True))
        item.add_marker(skip_without(reason))


@pytest.fixture(scope="session")
def site_url(django_db_setup) -> Iterator[str]:
    """Start the application with collected static files and yield its URL."""
    call_command("collectstatic", interactive=False, verbosity=0)
    from apps.agent_server.web.router import AgentRouter
    from apps.core.http.asgi import AsgiRouter, websocket_application
    from apps.core.http.wsgi_bridge import WSGIBridge
    from apps.deployments.consumers import websocket_routes

    django, websocket = WSGIBridge(get_wsgi_application()), websocket_application(websocket_routes)
    application = AsgiRouter(
        agents=AgentRouter(websocket=websocket, fallback=django),
        websocket=websocket,
        fallback=django,
    )
    port = free_port()
    config = uvicorn.Config(
        application, port=port, ws="websockets-sansio", log_config=None, access_log=False
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started, "the web server", seconds=120)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(60)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Start one browser for all tests of pages. Playwright runs its event loop in this thread.

    Django refuses database access on such a thread unless DJANGO_ALLOW_ASYNC_UNSAFE is set, and
    async tests of other packages need a thread without a running loop.
    """
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM_PATH, args=["--no-sandbox"], timeout=120_000
        )
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def context(browser: Browser, site_url: str) -> BrowserContext:
    """A context of all tests: static files stay in its cache, `session` deletes everything else."""
    return create_context(browser, site_url)


def create_context(browser: Browser, site_url: str) -> BrowserContext:
    context = browser.new_context(base_url=site_url, viewport=VIEWPORT)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    context.set_default_timeout(DEFAULT_TIMEOUT_MS)
    context.add_init_script(path=PAGE_STATE)
    return context


@dataclass
class BrowserSession:
    """A signed-in browser session and the errors of its console."""

    page: Page
    context: BrowserContext
    user: User
    workspace: Workspace
    console_errors: list[str]

    @property
    def path(self) -> str:
        return f"/o/{self.workspace.pk}"

    def goto(self, address: str) -> Page:
        """Open the path and wait until the page reacts to keys."""
        self.page.goto(address)
        return self.wait_for_elements()

    def wait_for_elements(self) -> Page:
        """Wait until custom elements are defined and htmx has processed the page.

        Clicks and assertions wait for it themselves (`open_page`); keys and the mouse do not.
        """
        expect(self.page.locator(LOADED)).to_have_count(1)
        late = "api-docs, json-view, markdown-view, time-chart"  # LATE of page_state.js
        expect(self.page.locator(f"body :not(:defined, {late})")).to_have_count(0)
        return self.page


def open_page(context: BrowserContext) -> Page:
    """Open a tab in which each click and each assertion first waits for the page's scripts.

    Until they run, forms are sent without htmx and custom elements do not react.
    """
    page = context.new_page()
    page.add_locator_handler(page.locator(f":root:not({LOADED})"), lambda _: None)
    return page


@pytest.fixture
def session(site_url: str, context: BrowserContext) -> Iterator[BrowserSession]:
    """A session of a signed-in editor. The test fails if the browser console reports an error."""
    cache.clear()
    expect.set_options(timeout=DEFAULT_TIMEOUT_MS)
    workspace = WorkspaceFactory(name="Desk", organization__name="Northwind")
    user = create_workspace_user(workspace, "editor")
    sign_in(context, site_url, user)
    page = open_page(context)
    console_errors: list[str] = []
    page.on("console", lambda m: console_errors.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: console_errors.append(str(error)))
    yield BrowserSession(page, context, user, workspace, console_errors)
    delete_stored_data(context, page, site_url)
    # Changing the viewport or media during a page load aborts its view transition.
    aborted_transition = "Transition was aborted because of invalid state."
    assert [text for text in console_errors if not text.startswith(aborted_transition)] == []


def sign_in(context: BrowserContext, site_url: str, user: User) -> None:
    """Sign in with a cookie; `test_workflows` does so with the form."""
    client = Client()
    client.force_login(user)
    name = settings.SESSION_COOKIE_NAME
    context.add_cookies([{"name": name, "value": client.cookies[name].value, "url": site_url}])


def delete_stored_data(context: BrowserContext, page: Page, site_url: str) -> None:
    context.set_offline(False)
    context.new_cdp_session(page).send(
        "Storage.clearDataForOrigin", {"origin": site_url, "storageTypes": "local_storage"}
    )
    context.clear_cookies()
    for opened in context.pages:
        opened.close()
