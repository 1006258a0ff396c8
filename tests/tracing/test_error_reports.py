"""The texts of errors: message first, own frames with relative paths, library frames apart."""

from __future__ import annotations

from apps.tracing.pages.error_reports import MAX_TEXT, Frame, FrameGroup, build_error

SOURCE = "/var/lib/data/revisions/0190a1b2-c3d4-7ef0-a5b6-6ea3a82e9328/1/source"
LANGCHAIN = f"""ValueError("no order 7")Traceback (most recent call last):


  File "{SOURCE}/../venv/lib/python3.11/site-packages/langgraph/pregel/main.py", line 3, in astream
    async for part in loop:
    ^^^^^^^^^^^^^^^^^^^^^^


  File "/opt/venv/lib/python3.11/site-packages/langgraph/_runner.py", line 90, in tick
    run_with_retry(


  File "{SOURCE}/src/desk/graph.py", line 41, in answer
    return find_order(state["order"])
           ^^^^^^^^^^^^^^^^^^^^^^^^^^


  File "{SOURCE}/src/desk/orders.py", line 12, in find_order
    raise ValueError(f"no order {{number}}")


ValueError: no order 7"""


def test_own_frames_have_paths_of_the_repository_and_library_frames_are_a_group_apart():
    report = build_error(LANGCHAIN)

    assert report.title == 'ValueError("no order 7")'
    assert report.groups == [
        FrameGroup(
            [
                Frame(
                    "langgraph/pregel/main.py",
                    3,
                    "astream",
                    "async for part in loop:",
                    is_library=True,
                ),
                Frame("langgraph/_runner.py", 90, "tick", "run_with_retry(", is_library=True),
            ],
            is_library=True,
        ),
        FrameGroup(
            [
                Frame("src/desk/graph.py", 41, "answer", 'return find_order(state["order"])'),
                Frame(
                    "src/desk/orders.py", 12, "find_order", 'raise ValueError(f"no order {number}")'
                ),
            ],
            is_library=False,
        ),
    ]
    assert report.text == LANGCHAIN
    assert not report.is_interrupt


def test_message_of_a_plain_traceback_is_found_behind_its_frames_with_all_its_lines():
    report = build_error(
        "Traceback (most recent call last):\n"
        '  File "/app/agent.py", line 5, in main\n    run()\n'
        '  File "/app/lib/tools.py", line 2, in run\n    validate()\n'
        "pydantic.ValidationError: 2 errors for Order\nnumber\n  Input should be a number\n"
    )

    assert report.title == "pydantic.ValidationError: 2 errors for Order"
    assert report.details == "number\n  Input should be a number"
    [group] = report.groups
    assert [(frame.path, frame.code) for frame in group.frames] == [
        ("agent.py", "run()"),
        ("lib/tools.py", "validate()"),
    ]


def test_only_the_last_traceback_of_a_chain_has_frames():
    report = build_error(
        'Traceback (most recent call last):\n  File "a.py", line 1, in first\n    x\nKeyError: 1\n'
        "\nDuring handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "b.py", line 2, in second\n    y\nOSError: no'
    )

    assert report.title == "OSError: no"
    assert [frame.path for group in report.groups for frame in group.frames] == ["b.py"]


def test_javascript_stack_has_own_and_library_frames():
    report = build_error(
        "Error: card expired\nwith code 7\n"
        "    at charge (/app/src/billing.ts:10:7)\n"
        "    at async Runner.run (file:///app/node_modules/@langchain/core/dist/run.js:3:1)\n"
        "    at process.processTicksAndRejections (node:internal/process/task_queues:95:5)"
    )

    assert (report.title, report.details) == ("Error: card expired", "with code 7")
    assert [group.is_library for group in report.groups] == [False, True]
    assert report.groups[0].frames == [Frame("src/billing.ts", 10, "charge")]
    assert report.groups[1].frames[0].path == "@langchain/core/dist/run.js"


def test_interrupt_and_text_without_frames_have_no_frames():
    interrupt = build_error("GraphInterrupt((Interrupt(value='Refund?'),))\n" + LANGCHAIN)
    plain = build_error("429 too many requests\nRetry after 3 s")

    assert interrupt.is_interrupt
    assert interrupt.groups == []
    assert (plain.title, plain.details, plain.groups) == (
        "429 too many requests",
        "Retry after 3 s",
        [],
    )
    assert build_error("").title == ""
    assert len(build_error("x" * 100_000).text) == MAX_TEXT


def test_repr_of_several_lines_is_read_as_a_message_of_several_lines():
    report = build_error(r"RecursionError('Limit of 2 reached.\nSee \'docs\'')")

    assert report.title == "RecursionError: Limit of 2 reached."
    assert report.details == "See 'docs'"


def test_message_that_is_no_repr_stays():
    for message in (
        r"Error('a\nb') and more",
        r"Error('a\x\n')",
        r"Error('\N{no}\n')",
        "Error('a')",
    ):
        assert build_error(message).title == message
