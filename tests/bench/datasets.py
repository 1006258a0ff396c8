"""`make bench-datasets`: uploads and reads of a large dataset, comparison of experiments, prompts.

Starts an installation of its own in a temporary folder. The public client uploads `--uploads`
examples, after a measurement of its encoding alone; SQL writes a dataset of `--examples`. Then it
sends each kind of read in turn over HTTP, one request at a time, and writes the plans of their
statements to a file. Chromium opens the comparison; its largest contentful paint is the time.
The last output is a Markdown table of all times with their targets.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID, uuid4

UPLOAD_BATCH = 5_000
"""Examples of one call of the client; each call makes a version."""
VERSION_SIZE = 10_000
EXPERIMENTS, SCORE_KEYS = 5, 5
RUN_BATCH = 1_000
PAGE = 100


@dataclass
class Read:
    """A request that is sent repeatedly; `build` returns method, path and body of number n."""

    name: str
    build: Callable[[int], tuple[str, str, Any]]
    target_ms: float | None = 150


def build_example(number: int) -> dict[str, Any]:
    """An example of about 300 bytes."""
    return {
        "inputs": {"question": f"Why does order {number} not arrive in time?", "number": number},
        "outputs": {"answer": f"Because the carrier of order {number} was delayed. " * 2},
        "metadata": {"topic": f"topic-{number % 100}"},
    }


def upload(client: Any, dataset_id: UUID, count: int) -> float:
    """Upload the examples by the client in calls of `UPLOAD_BATCH`; return the seconds."""
    batches = [
        [build_example(number) for number in range(first, min(first + UPLOAD_BATCH, count))]
        for first in range(0, count, UPLOAD_BATCH)
    ]
    begin = time.perf_counter()
    for batch in batches:
        client.create_examples(dataset_id=dataset_id, examples=batch)
    return time.perf_counter() - begin


def measure_encoding(client: Any, dataset_id: UUID, count: int) -> float:
    """Return the seconds of the same calls if each encoded request is answered at once, unsent."""
    import requests
    from langsmith import Client as SdkClient

    answer = requests.Response()
    answer.status_code = 200
    answer._content = json.dumps({"count": 0, "example_ids": []}).encode()

    def answer_at_once(*_: Any, request_kwargs: Any, **__: Any) -> requests.Response:
        body = request_kwargs["data"]
        if hasattr(body, "read"):
            body.read()
        return answer

    with patch.object(SdkClient, "request_with_retries", answer_at_once):
        return upload(client, dataset_id, count)


FILL = """
INSERT INTO datasets_examplerevision (
    id, workspace_id, dataset_id, example_id, created_at, valid_from, valid_to, position,
    inputs, outputs, metadata, splits
)
SELECT uuidv7(), %(workspace)s, %(dataset)s, gen_random_uuid(), v.as_of, v.as_of, NULL, n,
    json_build_object('question', 'Why does order ' || v.number || '-' || n || ' not arrive?',
        'number', n),
    json_build_object('answer', repeat('Because the carrier was delayed. ', 4)),
    jsonb_build_object('topic', 'topic-' || n %% 100, 'dataset_split', jsonb_build_array('base')),
    ARRAY[CASE WHEN n %% 1000 = 0 THEN 'rare' ELSE 'base' END]
FROM (SELECT %(as_of)s::timestamptz AS as_of, %(version)s AS number) v,
    generate_series(0, %(size)s - 1) n
"""


def fill_dataset(workspace_id: UUID, name: str, count: int) -> tuple[UUID, list[datetime]]:
    """Write a dataset by SQL; return its id and the times of its versions, oldest first."""
    from django.db import connection

    from apps.datasets.models import Dataset, DatasetVersion
    from apps.datasets.services.datasets import create_dataset

    dataset = create_dataset(workspace_id=workspace_id, name=name)
    begin = datetime.now(UTC) - timedelta(days=10)
    sizes = [min(VERSION_SIZE, count - first) for first in range(0, count, VERSION_SIZE)]
    times = [begin + timedelta(minutes=number) for number in range(len(sizes))]
    with connection.cursor() as cursor:
        for number, (as_of, size) in enumerate(zip(times, sizes, strict=True)):
            parameters = {"workspace": workspace_id, "dataset": dataset.pk, "as_of": as_of}
            cursor.execute(FILL, parameters | {"version": number, "size": size})
            version = DatasetVersion(
                workspace_id=workspace_id, dataset=dataset, as_of=as_of, added_count=size
            )
            version.save(force_insert=True)
        cursor.execute("VACUUM ANALYZE datasets_examplerevision")
    Dataset.objects.for_workspace(workspace_id).filter(pk=dataset.pk).update(
        example_count=count, latest_version_at=times[-1]
    )
    return dataset.pk, times


def fill_experiments(workspace_id: UUID, size: int) -> tuple[UUID, list[UUID]]:
    """Write a dataset with experiments, their runs and scores through the services."""
    from apps.core.json import dumps
    from apps.datasets.models import ExampleRevision
    from apps.feedback.services.feedback import store_feedback
    from apps.feedback.wire import decode_feedback
    from apps.ingest.decoders import decode_batch
    from apps.ingest.services.ingest_runs import ingest
    from apps.trace_store.dotted_order import format_segment
    from apps.tracing.services import create_project

    dataset_id, times = fill_dataset(workspace_id, f"compared {uuid4()}", size)
    rows = ExampleRevision.objects.for_workspace(workspace_id).filter(dataset_id=dataset_id)
    example_ids = list(rows.newest_first().values_list("example_id", flat=True))
    experiment_ids = []
    for number in range(EXPERIMENTS):
        start = datetime.now(UTC) - timedelta(hours=12 - number)
        project = create_project(
            workspace_id=workspace_id,
            name=f"experiment {uuid4()}",
            reference_dataset_id=dataset_id,
            start_time=start,
            extra={"metadata": {"dataset_version": times[-1].isoformat()}},
        )
        experiment_ids.append(project.pk)
        for first in range(0, size, RUN_BATCH):
            runs = []
            for index, example_id in enumerate(example_ids[first : first + RUN_BATCH], first):
                run_id, begin = uuid4(), start + timedelta(milliseconds=100 * index)
                runs.append(
                    {
                        "id": run_id,
                        "trace_id": run_id,
                        "dotted_order": format_segment(begin, run_id),
                        "session_id": project.pk,
                        "name": "Target",
                        "run_type": "chain",
                        "start_time": begin,
                        "end_time": begin + timedelta(seconds=1),
                        "inputs": {"question": f"Why does order {index} not arrive?"},
                        "outputs": {"answer": f"Because of experiment {number}. " * 4},
                        "reference_example_id": example_id,
                    }
                )
            ingest(workspace_id, decode_batch(dumps({"post": runs})))
            scores = [
                decode_feedback(
                    dumps(
                        {
                            "id": uuid4(),
                            "run_id": run["id"],
                            "trace_id": run["id"],
                            "session_id": project.pk,
                            "start_time": run["start_time"],
                            "key": f"score-{key}",
                            "score": (index * (key + 3) + number) % 10 / 10,
                        }
                    )
                )
                for index, run in enumerate(runs)
                for key in range(SCORE_KEYS)
            ]
            store_feedback(workspace_id, scores, user_id=None)
    return dataset_id, experiment_ids


def wait_until_processed() -> None:
    """Wait until workers have post-processed the runs and attached the scores."""
    from django.db import connection

    deadline = time.monotonic() + 1_800
    with connection.cursor() as cursor:
        while True:
            cursor.execute("SELECT count(*) FROM trace_store_pending_run")
            (pending,) = cursor.fetchone()
            if not pending:
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"{pending:,} requests with runs are not processed.")
            time.sleep(2)
        cursor.execute("VACUUM ANALYZE")


def dataset_reads(dataset_id: UUID, times: list[datetime], count: int) -> Iterator[Read]:
    """Lists of the latest version and of the middle one, from the first page to the last."""
    middle = times[len(times) // 2].isoformat().replace("+", "%2B")
    before = count // 2
    path = f"/examples?dataset={dataset_id}&limit={PAGE}"

    def page(offset: int, version: str = "") -> Callable[[int], tuple[str, str, Any]]:
        return lambda n: ("GET", f"{path}&offset={max(0, offset - n)}{version}", None)

    as_of = f"&as_of={middle}"
    yield Read("first page", page(0))
    yield Read("page at 10 %", page(count // 10))
    yield Read("page at 50 %", page(count // 2))
    yield Read("page at 99.9 %", page(count - count // 1000))
    yield Read("first page, as of the middle", page(0, as_of))
    yield Read("page at 50 %, as of the middle", page(before // 2, as_of))
    yield Read("page at 99.9 %, as of the middle", page(before - before // 1000, as_of))
    yield Read("split of 0.1 %, first page", page(0, "&splits=rare"))
    yield Read("metadata of 1 %, first page", page(0, "&metadata=%7B%22topic%22:%22topic-7%22%7D"))
    yield Read("count", lambda _: ("GET", f"/examples/count?dataset={dataset_id}", None))
    yield Read("datasets", lambda _: ("GET", "/datasets?limit=100", None))


def comparison_reads(dataset_id: UUID, experiment_ids: list[UUID], size: int) -> Iterator[Read]:
    """Pages of the comparison, as the clients ask for them."""
    body = {"session_ids": [str(item) for item in experiment_ids], "limit": 20, "offset": 0}
    path = f"/datasets/{dataset_id}/runs"
    middle = size // 2
    by_score = {"sort_params": {"sort_by": "feedback.score-1", "sort_order": "DESC"}}
    low = 'and(eq(feedback_key, "score-1"), lt(feedback_score, 0.3))'
    yield Read("first page of 20", lambda _: ("POST", path, body), 300)
    yield Read("first page of 100", lambda _: ("POST", path, body | {"limit": 100}), 300)
    yield Read("page at 50 %", lambda _: ("POST", path, body | {"offset": middle}), 300)
    yield Read("first page, by score", lambda _: ("POST", path, body | by_score), None)
    yield Read(
        "first page, low scores of the first",
        lambda _: ("POST", path, body | {"filters": {str(experiment_ids[0]): [low]}}),
        None,
    )


class Client:
    def __init__(self, url: str, port: int, key: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self._headers = {"X-Api-Key": key, "Content-Type": "application/json"}
        self._prefix = url

    def send(self, method: str, path: str, body: Any) -> Any:
        content = None if body is None else json.dumps(body)
        self._connection.request(method, self._prefix + path, content, self._headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]!r}")
        return json.loads(text)


def measure(client: Client, reads: list[Read], rounds: int) -> dict[str, Any]:
    """Send each request `rounds` times, alternating with the others, and print the statistics."""
    durations: dict[str, list[float]] = {read.name: [] for read in reads}
    rows: dict[str, int] = {}
    for n in range(rounds + 1):  # the first round warms up
        for read in reads:
            begin = time.perf_counter()
            answer = client.send(*read.build(n))
            if n:
                durations[read.name].append(1000 * (time.perf_counter() - begin))
            rows[read.name] = len(answer) if isinstance(answer, list) else answer
    report = {}
    for read in reads:
        report[read.name] = summarize(read.name, durations[read.name], read.target_ms)
        print(f"    {rows[read.name]:,} rows")
    return report


def summarize(name: str, times: Sequence[float], target_ms: float | None) -> dict[str, Any]:
    """Print and return the statistics of these milliseconds."""
    values = sorted(times)
    p50, p95 = statistics.median(values), values[int(0.95 * (len(values) - 1))]
    target = "" if target_ms is None else f"{target_ms:.0f}"
    mark = "!" if target_ms is not None and p95 > target_ms else " "
    print(f"  {name:38} p50 {p50:7.1f} ms  p95 {p95:7.1f} ms  {target:>4} {mark}")
    return {"p50_ms": p50, "p95_ms": p95, "target_ms": target_ms}


def format_table(report: dict[str, Any]) -> str:
    """Return the times of the report as a Markdown table."""
    lines = ["| | p50 ms | p95 ms | target p95 | |", "|---|--:|--:|--:|---|"]
    for part in ("lists", "comparison", "page", "prompts"):
        for name, item in report[part].items():
            target = item["target_ms"]
            word = "" if target is None else "met" if item["p95_ms"] <= target else "MISSED"
            limit = "" if target is None else f"{target:.0f}"
            lines.append(
                f"| {name} | {item['p50_ms']:.1f} | {item['p95_ms']:.1f} | {limit} | {word} |"
            )
    return "\n".join(lines)


def write_plans(key: str, reads: Sequence[Read], target: Path) -> None:
    """Append EXPLAIN (ANALYZE, BUFFERS) of the statements of each read, which runs in here."""
    from django.test import Client as InProcessClient

    from tests.bench.plans import record_statements

    client = InProcessClient(headers={"X-Api-Key": key, "Host": "localhost"})
    with target.open("a") as file:
        for read in reads:
            method, path, body = read.build(1)
            send = getattr(client, method.lower())
            options = {} if body is None else {"data": json.dumps(body)}
            with record_statements(("datasets_", "trace_store_run", "feedback_")) as recorder:
                answer = send(f"/api/v1{path}", content_type="application/json", **options)
            assert answer.status_code == 200, answer.content[:300]
            file.write(f"\n==== {read.name}\n\n{recorder.plans()}\n")


LARGEST_PAINT = """
() => new Promise((resolve) => {
  new PerformanceObserver((list) => {
    const entries = list.getEntries();
    resolve(entries[entries.length - 1].startTime);
  }).observe({ type: "largest-contentful-paint", buffered: true });
})
"""


FIRST_BYTE = "() => performance.getEntriesByType('navigation')[0].responseStart"


def measure_page(installation: Any, path: str, rounds: int) -> dict[str, Any]:
    """Open the page in Chromium as the administrator; return the statistics of byte and paint."""
    from playwright.sync_api import sync_playwright

    from tests.browser.chromium import CHROMIUM_PATH
    from tests.browser.screenshots import sign_in

    password = (installation.data_dir / "secrets" / "admin_password").read_text().strip()
    first_bytes, paints = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM_PATH, args=["--no-sandbox"])
        page = sign_in(browser, installation.url, "admin@localhost", password).new_page()
        for number in range(rounds + 1):
            page.goto(path)
            page.locator("tr[data-row]").first.wait_for()
            if number:  # the first one fills the caches
                first_bytes.append(page.evaluate(FIRST_BYTE))
                paints.append(page.evaluate(LARGEST_PAINT))
        browser.close()
    first_byte, painted = "comparison, first byte in Chromium", "comparison painted in Chromium"
    return {
        first_byte: summarize(first_byte, first_bytes, None),
        painted: summarize(painted, paints, 1000),
    }


def measure_prompts(client: Any, workspace_id: UUID, rounds: int) -> dict[str, Any]:
    """Time `pull_prompt`, and a select of the same manifest on an open connection."""
    from django.db import connection
    from langchain_core.prompts import ChatPromptTemplate

    name = f"bench-{uuid4().hex[:8]}"
    prompt = ChatPromptTemplate([("system", "Answer {question} briefly."), ("human", "{question}")])
    client.push_prompt(name, object=prompt)
    select = """
        SELECT c.manifest::text FROM prompts_commit c JOIN prompts_repository r
        ON r.id = c.repository_id
        WHERE r.workspace_id = %s AND r.handle = %s ORDER BY c.created_at DESC LIMIT 1
    """
    pulls, commits, selects = [], [], []
    for _ in range(rounds):
        begin = time.perf_counter()
        client.pull_prompt(name, skip_cache=True)
        pulls.append(1000 * (time.perf_counter() - begin))
        begin = time.perf_counter()
        client.pull_prompt_commit(name, skip_cache=True)
        commits.append(1000 * (time.perf_counter() - begin))
        begin = time.perf_counter()
        with connection.cursor() as cursor:
            cursor.execute(select, [workspace_id, name])
            assert cursor.fetchone()
        selects.append(1000 * (time.perf_counter() - begin))
    times = {"pull_prompt": pulls, "pull_prompt_commit": commits, "bare select": selects}
    return {name: summarize(name, values, None) for name, values in times.items()}


def run(options: argparse.Namespace, installation: Any) -> dict[str, Any]:
    import django

    django.setup()
    from langsmith import Client as SdkClient

    facts = installation.bootstrap()
    installation.manage("set_limits", "--organization", "Slipway", "--factor", "100000")
    workspace_id = UUID(facts["workspace_id"])
    sdk = SdkClient(api_url=f"{installation.url}/api/v1", api_key=facts["api_key"])
    client = Client("/api/v1", installation.port, facts["api_key"])
    report: dict[str, Any] = {}

    uploaded = sdk.create_dataset(f"uploaded {uuid4()}")
    encoding = measure_encoding(sdk, uploaded.id, options.uploads)
    seconds = upload(sdk, uploaded.id, options.uploads)
    count = client.send("GET", f"/examples/count?dataset={uploaded.id}", None)
    assert count == options.uploads, count
    report["upload"] = {"examples": options.uploads, "s": seconds, "encoding_s": encoding}
    print(
        f"upload of {options.uploads:,} examples: {options.uploads / seconds:,.0f} a second"
        f" ({seconds:.1f} s, of which the client's own encoding {encoding:.1f} s)"
    )

    begin = time.perf_counter()
    dataset_id, times = fill_dataset(workspace_id, f"large {uuid4()}", options.examples)
    print(f"{options.examples:,} examples by SQL in {time.perf_counter() - begin:.0f} s")
    lists = list(dataset_reads(dataset_id, times, options.examples))
    report["lists"] = measure(client, lists, options.rounds)

    begin = time.perf_counter()
    compared_id, experiment_ids = fill_experiments(workspace_id, options.experiment_size)
    wait_until_processed()
    print(
        f"{EXPERIMENTS} experiments of {options.experiment_size:,} runs with {SCORE_KEYS} scores"
        f" each in {time.perf_counter() - begin:.0f} s"
    )
    comparison = list(comparison_reads(compared_id, experiment_ids, options.experiment_size))
    report["comparison"] = measure(client, comparison, options.rounds)
    chosen = "&".join(f"e={item}" for item in experiment_ids)
    page = f"/o/{workspace_id}/datasets/{compared_id}/experiments/compare?{chosen}"
    report["page"] = measure_page(installation, page, options.rounds)
    options.plans.parent.mkdir(parents=True, exist_ok=True)
    options.plans.unlink(missing_ok=True)
    write_plans(facts["api_key"], lists + comparison, options.plans)
    print(f"  plans: {options.plans}")
    report["prompts"] = measure_prompts(sdk, workspace_id, 10 * options.rounds)
    sdk.cleanup()
    print(format_table(report))
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=1_000_000)
    parser.add_argument("--uploads", type=int, default=50_000)
    parser.add_argument("--experiment-size", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--plans", type=Path, default=Path("var/dataset-plans.txt"))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slipway-datasets-") as folder:
        Path(folder).chmod(0o711)
        os.environ |= {"DATA_DIR": folder, "DJANGO_SETTINGS_MODULE": "config.settings"}
        from tests.installation import Installation

        installation = Installation(Path(folder) / "x")
        os.environ |= {"PORT": str(installation.port), "DATA_DIR": str(installation.data_dir)}
        installation.start()
        installation.wait_until_ready()
        try:
            report = run(options, installation)
        finally:
            installation.stop()
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
