"""Charts in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.test_accessibility import axe_violations
from tests.factories.monitoring import ChartFactory, SectionFactory
from tests.factories.tracing import ingest, read_run
from tests.tracing.stats.populations import build_run


def project_path(session, run):
    project_id = read_run(session.workspace, run["id"]).row.project_id
    return f"{session.path}/projects/p/{project_id}"


def test_a_legend_button_toggles_a_line_and_its_previous_period(session):
    run = build_run(1, seconds=2)
    ingest(session.workspace, run, build_run(-8 * 24 * 60, seconds=4))
    page = session.goto(f"{project_path(session, run)}/monitoring?compare=1")
    chart = page.locator("time-chart").filter(has_text="Trace latency")
    legend = chart.locator(".chart-legend")

    expect(legend.get_by_role("button")).to_have_text(["p50", "p95", "p99"])
    expect(legend).to_contain_text("previous")
    legend.get_by_role("button", name="p99").click()
    chart.locator(".u-over").hover()

    expect(legend.get_by_role("button", name="p99")).to_have_attribute("aria-pressed", "false")
    expect(chart.locator(".chart-tooltip div")).to_have_count(2)
    expect(chart.locator(".chart-tooltip div").first).to_contain_text("before")
    # No run failed, waits or was cancelled: those counts have neither line nor button.
    counts = page.locator("time-chart").filter(has_text="Trace count").locator(".chart-legend")
    expect(counts.get_by_role("button")).to_have_text(["Success"])


def test_tooltip_table_and_relative_times_agree_on_the_zone(session):
    run = build_run(1, seconds=2)
    ingest(session.workspace, run)
    path = f"{project_path(session, run)}/monitoring"
    override = {"timezoneId": "Asia/Kolkata"}
    session.context.new_cdp_session(session.page).send("Emulation.setTimezoneOverride", override)
    session.goto(path)  # stores the zone for the next page

    page = session.goto(path)

    expect(page.locator("html")).to_have_attribute("data-time-zone", "Asia/Calcutta")
    chart = page.locator("time-chart").filter(has=page.locator(".u-over")).first
    box = chart.locator(".u-over").bounding_box()
    chart.locator(".u-over").hover(position={"x": box["width"] - 2, "y": box["height"] / 2})
    shown = chart.locator(".chart-tooltip time").text_content()
    chart.locator("summary").click()
    assert "IST" in chart.locator("th").first.text_content()
    # Buckets of six hours in UTC begin at half past in India.
    assert shown.endswith(":30")
    assert chart.locator("tbody td").first.text_content().endswith(":30")


@pytest.fixture
def dashboard(session):
    """A dashboard of the charts "one", "two" and "three", opened in the browser."""
    run = build_run(1)
    ingest(session.workspace, run)
    section = SectionFactory(workspace=session.workspace)
    for index, title in enumerate(("one", "two", "three")):
        ChartFactory(section=section, title=title, index=index)
    session.goto(f"{session.path}/dashboards/{section.pk}")
    expect(session.page.locator(".chart-cell canvas")).to_have_count(3)
    session.wait_for_elements()
    return section


def titles(page):
    return page.locator(".chart-cell h3").all_inner_texts()


def saved(section):
    return [(chart.title, chart.columns) for chart in section.charts.in_order()]


def arrange(page, action):
    with page.expect_response(lambda response: response.url.endswith("/arrange")) as response:
        action()
    assert response.value.status == 204


def test_charts_are_moved_and_resized_by_drag(session, dashboard):
    page = session.page

    def drag(handle, x, y):
        handle.hover()
        page.mouse.down()
        page.mouse.move(x, y, steps=4)
        page.mouse.up()

    target = page.locator(".chart-cell").nth(2).bounding_box()
    move = page.get_by_role("button", name="Move one")
    arrange(page, lambda: drag(move, target["x"] + 80, target["y"] + 80))

    assert titles(page) == ["two", "three", "one"]
    expect(page.locator(".chart-cell").nth(2).locator("canvas")).to_have_count(1)

    first = page.locator(".chart-cell").first
    box = first.bounding_box()
    edge = first.locator(".chart-resize")
    arrange(page, lambda: drag(edge, box["x"] + 2 * box["width"], box["y"] + 100))

    assert first.bounding_box()["width"] > 1.9 * box["width"]
    assert saved(dashboard) == [("two", 2), ("three", 1), ("one", 1)]
    assert page.locator(".is-dragged, .is-drop-before, .is-drop-after").count() == 0


def test_charts_are_moved_and_resized_by_keys(session, dashboard):
    page = session.page
    status = page.locator("chart-grid > [role=status]")

    page.get_by_role("button", name="Move one").focus()
    arrange(page, lambda: page.keyboard.press("ArrowRight"))
    expect(status).to_have_text("one: position 2 of 3")
    expect(page.get_by_role("button", name="Move one")).to_be_focused()
    arrange(page, lambda: page.keyboard.press("End"))
    page.get_by_role("button", name="Width of two").focus()
    arrange(page, lambda: page.keyboard.press("ArrowRight"))

    expect(status).to_have_text("two: 2 of 3 columns wide")
    expect(page.get_by_role("button", name="Width of two: 2 of 3 columns")).to_be_focused()
    assert titles(page) == ["two", "three", "one"]
    assert saved(dashboard) == [("two", 2), ("three", 1), ("one", 1)]
    page.reload()
    expect(page.locator(".chart-cell h3")).to_have_text(["two", "three", "one"])
    assert axe_violations(page) == []


def test_a_narrow_page_has_one_column_and_no_width_handles(session, dashboard):
    page = session.page
    dashboard.charts.filter(title="one").update(columns=3)
    page.set_viewport_size({"width": 390, "height": 844})
    page.reload()
    session.wait_for_elements()

    expect(page.locator(".chart-cell canvas")).to_have_count(3)
    expect(page.locator(".chart-resize:visible")).to_have_count(0)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_rejected_arrangement_is_undone(session, dashboard):
    page = session.page
    dashboard.charts.get(title="three").delete()

    page.get_by_role("button", name="Move one").focus()
    page.keyboard.press("ArrowRight")

    expect(page.locator(".toast")).to_contain_text("was not saved")
    assert titles(page) == ["one", "two", "three"]
    session.console_errors[:] = [text for text in session.console_errors if "404" not in text]
