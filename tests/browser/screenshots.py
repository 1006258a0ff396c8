"""Pictures of every page of a running installation, for people to look at.

`python -m tests.browser.screenshots [--out FOLDER]` signs in to the installation of PORT and
DATA_DIR (or `--url`, `--email`, `--password`), visits what it finds in both themes and widths, and
ends with status 1 when a page overflows or complains in the browser's console.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from config.env import env
from tests.browser.chromium import CHROMIUM

WIDTHS = {1440: 900, 390: 844}
THEMES = ("light", "dark")


def main() -> int:
    parser = argparse.ArgumentParser(prog="screenshots", description=__doc__)
    parser.add_argument("--url", default=env().base_url)
    parser.add_argument("--email", default="admin@localhost")
    parser.add_argument("--password")
    parser.add_argument("--out", type=Path, default=env().data_dir / "screenshots")
    options = parser.parse_args()
    kept = env().data_dir / "secrets" / "admin_password"
    password = options.password or kept.read_text().strip()
    options.out.mkdir(parents=True, exist_ok=True)
    complaints: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        state = _signed_in(browser, options.url, options.email, password)
        pages = {"sign-in": "/sign-in", **_found(state, options.url)}
        for width, height in WIDTHS.items():
            for theme in THEMES:
                context = browser.new_context(
                    base_url=options.url,
                    viewport={"width": width, "height": height},
                    color_scheme=theme,
                    storage_state=state.storage_state(),
                )
                for name, address in pages.items():
                    if name == "sign-in":
                        context.clear_cookies()
                    file = options.out / f"{name}-{width}-{theme}.png"
                    complaints += _picture(context.new_page(), address, file)
                    if name == "sign-in":
                        context.add_cookies(state.cookies())
                context.close()
        browser.close()
    for complaint in complaints:
        sys.stderr.write(f"{complaint}\n")
    sys.stdout.write(f"{len(pages) * 4} pictures in {options.out}\n")
    return 1 if complaints else 0


def _signed_in(browser: Browser, url: str, email: str, password: str) -> BrowserContext:
    context = browser.new_context(base_url=url)
    page = context.new_page()
    page.goto("/sign-in")
    page.get_by_label("Email").fill(email)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/projects")
    return context


def _found(context: BrowserContext, url: str) -> dict[str, str]:
    """The pages that can be reached: the first row of each list, and the tabs of a deployment."""
    page = context.pages[0]
    return dict(_walk(page, page.url.removeprefix(url).removesuffix("/projects")))


def _walk(page: Page, base: str) -> Iterator[tuple[str, str]]:
    yield "projects", f"{base}/projects"
    if project := _first_row(page, f"{base}/projects"):
        yield "project", project
        yield "runs", f"{project}?show=all"
        yield "no-runs", f"{project}?q=nothing+of+the+kind"
        yield "monitoring", f"{project}/monitoring?compare=1"
        yield "threads", f"{project}/threads"
        yield "project-settings", f"{project}/settings"
        if trace := _first_row(page, project):
            yield "trace", trace
        if thread := _first_row(page, f"{project}/threads"):
            yield "thread", thread
    for name in ("ledger", "prices", "feedback", "retention"):
        yield f"settings-{name}", f"{base}/settings/{name}"
    yield "deployments", f"{base}/deployments"
    yield "new-deployment", f"{base}/deployments/new"
    if deployment := _first_row(page, f"{base}/deployments"):
        yield "deployment", deployment
        yield "environment", f"{deployment}/environment"
        yield "settings", f"{deployment}/settings"
        if revision := _first_row(page, deployment):
            yield "revision", revision
    yield "nowhere", f"{base}/nowhere"


def _first_row(page: Page, address: str) -> str | None:
    page.goto(address)
    link = page.locator(".row-link").first
    return link.get_attribute("href") if link.count() else None


def _picture(page: Page, address: str, file: Path) -> list[str]:
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(f"{file.name}: {error}"))
    page.goto(address)
    page.evaluate("document.fonts.ready")
    page.wait_for_timeout(400)
    if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
        complaints.append(f"{file.name}: wider than the window")
    page.screenshot(path=file)
    page.close()
    return complaints


if __name__ == "__main__":
    raise SystemExit(main())
