"""Take screenshots of every page of a running installation.

`python -m tests.browser.screenshots [--out FOLDER]` signs in to the installation of PORT and
DATA_DIR (or `--url`, `--email`, `--password`), visits every page in both themes and widths, and
exits with status 1 if a page overflows or the browser console reports an error. `--only` selects
pages by name, `--workspace` selects a workspace, `--whole` captures the full page.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from config.env import env
from tests.browser.chromium import CHROMIUM_PATH

WIDTHS = {1440: 900, 390: 844}
THEMES = ("light", "dark")


def main() -> int:
    parser = argparse.ArgumentParser(prog="screenshots", description=__doc__)
    parser.add_argument("--url", default=env().base_url)
    parser.add_argument("--email", default="admin@localhost")
    parser.add_argument("--password")
    parser.add_argument("--out", type=Path, default=env().data_dir / "screenshots")
    parser.add_argument("--workspace")
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--widths", nargs="+", type=int, default=list(WIDTHS))
    parser.add_argument("--themes", nargs="+", default=list(THEMES))
    parser.add_argument("--whole", action="store_true")
    options = parser.parse_args()
    password_file = env().data_dir / "secrets" / "admin_password"
    password = options.password or password_file.read_text().strip()
    options.out.mkdir(parents=True, exist_ok=True)
    console_errors: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM_PATH, args=["--no-sandbox"])
        state = sign_in(browser, options.url, options.email, password)
        pages = {"sign-in": "/sign-in", **_page_paths(state, options.url, options.workspace)}
        pages = {name: pages[name] for name in options.only or pages if name in pages}
        for width in options.widths:
            for theme in options.themes:
                context = browser.new_context(
                    base_url=options.url,
                    viewport={"width": width, "height": WIDTHS.get(width, 900)},
                    color_scheme=theme,
                    storage_state=state.storage_state(),
                )
                for name, address in pages.items():
                    if name == "sign-in":
                        context.clear_cookies()
                    file = options.out / f"{name}-{width}-{theme}.png"
                    console_errors += _take_screenshot(
                        context.new_page(), address, file, whole=options.whole
                    )
                    if name == "sign-in":
                        context.add_cookies(state.cookies())
                context.close()
        browser.close()
    for console_error in console_errors:
        sys.stderr.write(f"{console_error}\n")
    count = len(pages) * len(options.widths) * len(options.themes)
    sys.stdout.write(f"{count} screenshots in {options.out}\n")
    return 1 if console_errors else 0


def sign_in(browser: Browser, url: str, email: str, password: str) -> BrowserContext:
    """Return a context of the browser in which the user is signed in."""
    context = browser.new_context(base_url=url)
    page = context.new_page()
    page.goto("/sign-in")
    page.get_by_label("Email").fill(email)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/o/**")
    return context


def _page_paths(context: BrowserContext, url: str, workspace: str | None) -> dict[str, str]:
    """Return the paths of all pages, with the first row of each list."""
    page = context.pages[0]
    base = f"/o/{workspace}" if workspace else page.url.removeprefix(url).rpartition("/")[0]
    return dict(_iter_pages(page, base))


def _iter_pages(page: Page, base: str) -> Iterator[tuple[str, str]]:
    yield "start", f"{base}/start"
    yield "projects", f"{base}/projects"
    yield "no-projects", f"{base}/projects?q=no+match"
    if project := _first_row(page, f"{base}/projects"):
        yield from _iter_project_pages(page, project)
    yield from _iter_dataset_pages(page, f"{base}/datasets")
    yield from _iter_prompt_pages(page, f"{base}/prompts")
    yield from _iter_settings_pages(page, f"{base}/settings")
    yield "dashboards", f"{base}/dashboards"
    if dashboard := _first_row(page, f"{base}/dashboards"):
        yield "dashboard", dashboard
        yield "new-chart", f"{dashboard}/charts/new"
    yield from _iter_alert_pages(page, f"{base}/alerts")
    yield "exports", f"{base}/exports"
    yield "new-export", f"{base}/exports/new"
    yield "new-destination", f"{base}/exports/destinations/new"
    if export := _first_row(page, f"{base}/exports"):
        yield "export", export
    yield "playground", f"{base}/playground"
    yield "deployments", f"{base}/deployments"
    yield "new-deployment", f"{base}/deployments/new"
    if deployment := _first_row(page, f"{base}/deployments"):
        yield "deployment", deployment
        yield "logs", f"{deployment}/logs"
        yield "environment", f"{deployment}/environment"
        yield "settings", f"{deployment}/settings"
        if revision := _first_row(page, deployment):
            yield "revision", revision
    yield "not-found", f"{base}/not-found"


def _iter_dataset_pages(page: Page, base: str) -> Iterator[tuple[str, str]]:
    yield "datasets", base
    yield "no-datasets", f"{base}?q=no+match"
    yield "new-dataset", f"{base}/new"
    yield "import", f"{base}/import"
    yield "deleted-datasets", f"{base}/deleted"
    if dataset := _first_row(page, base):
        yield "dataset", dataset
        yield "dataset-versions", f"{dataset}/versions"
        yield "dataset-changes", f"{dataset}/versions/diff"
        yield "dataset-similar", f"{dataset}/similar"
        yield "dataset-settings", f"{dataset}/settings"
        yield "dataset-import", f"{dataset}/import"
        yield "new-example", f"{dataset}/new-example"
        if example := _first_row(page, dataset):
            yield "example", example
            yield "edit-example", f"{example}/edit"
            yield "example-preview", f"{dataset}?preview={example.rpartition('/')[2]}"
        yield from _iter_evaluator_pages(page, "dataset", f"{dataset}/evaluators")
        yield from _iter_experiment_pages(page, f"{dataset}/experiments")


def _iter_experiment_pages(page: Page, base: str) -> Iterator[tuple[str, str]]:
    yield "experiments", base
    yield "experiment-charts", f"{base}/charts"
    yield "pairwise-comparisons", f"{base}/pairwise"
    page.goto(base)
    chosen = [box.get_attribute("value") for box in page.locator("input[name=e]").all()[:3]]
    if chosen:
        yield "experiment-edit", f"{base}/e/{chosen[0]}/edit"
        comparison = f"{base}/compare?{'&'.join(f'e={item}' for item in chosen)}"
        yield "compared-experiments", comparison
        if example := _first_row(page, comparison):
            yield "compared-example", example
            example_id = example.partition("?")[0].rpartition("/")[2]
            yield "compared-peek", f"{comparison}&peek={example_id}"


def _iter_prompt_pages(page: Page, base: str) -> Iterator[tuple[str, str]]:
    yield "prompts", base
    yield "no-prompts", f"{base}?q=no+match"
    yield "new-prompt", f"{base}/new"
    if prompt := _first_row(page, base):
        yield "prompt", prompt
        for name in ("edit", "commits", "commits/latest/diff", "runs", "settings"):
            yield f"prompt-{name.replace('/', '-')}", f"{prompt}/{name}"


def _iter_alert_pages(page: Page, base: str) -> Iterator[tuple[str, str]]:
    yield "alerts", base
    yield "new-alert", f"{base}/new"
    if alert := _first_row(page, base):
        yield "alert", alert
        yield "edit-alert", f"{alert}/edit"


def _iter_evaluator_pages(page: Page, owner: str, list_url: str) -> Iterator[tuple[str, str]]:
    yield f"{owner}-evaluators", list_url
    if evaluator := _first_row(page, list_url):
        yield f"{owner}-evaluator", evaluator
        yield f"{owner}-edit-evaluator", f"{evaluator}/edit"


def _iter_settings_pages(page: Page, settings: str) -> Iterator[tuple[str, str]]:
    """Yield the pages of the settings navigation."""
    page.goto(f"{settings}/general")
    for link in page.locator(".settings-nav a").all():
        address = link.get_attribute("href") or ""
        name = address.partition("/settings/")[2]
        yield f"settings-{name.replace('/', '-')}", address


def _iter_project_pages(page: Page, project: str) -> Iterator[tuple[str, str]]:
    yield "project", project
    yield "runs", f"{project}?show=all"
    yield "no-runs", f"{project}?q=no+match"
    yield "no-filter", f"{project}?query=status:error%20latancy:%3E2s"
    yield "monitoring", f"{project}/monitoring?compare=1"
    yield "monitoring-by-model", f"{project}/monitoring?group=model"
    yield "threads", f"{project}/threads"
    yield "project-alerts", f"{project}/alerts"
    yield "project-settings", f"{project}/settings"
    yield from _iter_evaluator_pages(page, "project", f"{project}/evaluators")
    if trace := _first_row(page, project):
        yield "preview", f"{project}?preview={trace.rpartition('/')[2]}"
        yield "trace", trace
        yield "trace-tree", f"{trace}?view=tree"
        yield "share", f"{trace}/share"
        yield "compare", f"{project}/compare?a={trace.rpartition('/')[2]}"
    if deep := _first_row(page, f"{project}?tree=eq(run_type,%22tool%22)"):
        yield "deep", deep
        yield "waterfall", f"{deep}?view=waterfall"
    yield "trace-queries", f"{project}?show=all&any=type:tool"
    if call := _first_row(page, f"{project}?show=llm"):
        yield "llm-call", call
    if failed := _first_row(page, f"{project}?filter=eq(status,%22error%22)"):
        yield "failed", failed
    if thread := _first_row(page, f"{project}/threads"):
        yield "thread", thread
        yield "thread-turns", f"{thread}&view=turns"
        yield "thread-details", f"{thread}&view=details"


def _first_row(page: Page, address: str) -> str | None:
    page.goto(address)
    link = page.locator(".row-link").first
    return link.get_attribute("href") if link.count() else None


def _take_screenshot(page: Page, address: str, file: Path, *, whole: bool) -> list[str]:
    console_errors: list[str] = []
    page.on("pageerror", lambda error: console_errors.append(f"{file.name}: {error}"))
    page.goto(address, wait_until="networkidle")
    page.evaluate("document.fonts.ready")
    page.wait_for_timeout(300)
    if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
        console_errors.append(f"{file.name}: wider than the viewport")
    page.screenshot(path=file, full_page=whole)
    page.close()
    return console_errors


if __name__ == "__main__":
    raise SystemExit(main())
