"""What a failed build says about its installer's output."""

import pytest

from apps.deployments.builds.installer_errors import describe_failure

MINIMUM = "langgraph>=0.4.10"
LONG_DERIVATION = [
    *(f"         And because of {number}, we can conclude nothing." for number in range(50)),
    "             langgraph==1.2.4",
    "         And because agent==0.0.1 depends on search<0.2 and only agent==0.0.1 is available,",
    "         we can conclude that langgraph>=0.4.10 and all versions of agent are incompatible.",
    "         And because you require langgraph>=0.4.10 and agent, we can conclude that your",
    "         requirements are unsatisfiable.",
]


def test_conflict_with_the_platform_is_named_before_the_last_steps():
    lines = describe_failure(LONG_DERIVATION, minimum=MINIMUM).splitlines()

    assert lines[0] == (
        "no versions satisfy both the project's requirements and langgraph>=0.4.10, the minimum of"
        " this platform and of LangGraph's own server."
    )
    assert [line[:36] for line in lines[1:]] == [
        "And because agent==0.0.1 depends on ",
        "And because you require langgraph>=0",
    ]
    assert lines[-1].endswith("that your requirements are unsatisfiable.")


def test_conflict_within_the_project_is_no_conflict_with_the_platform():
    reason = "Because there is no version of x==9 and you require x==9, we can conclude that your"
    tail = ["error: No solution found", f"  cause: {reason} requirements are unsatisfiable."]

    assert describe_failure(tail, minimum=MINIMUM).splitlines() == [
        "no versions satisfy all requirements.",
        f"{reason} requirements are unsatisfiable.",
    ]


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        (["Resolved 3 packages", "", "error: no space", "  left"], "error: no space\n  left"),
        (["Collecting x", "ERROR: No matching version"], "ERROR: No matching version"),
        (["something", "odd"], "something\nodd"),
        ([], "no error message."),
    ],
)
def test_other_failures_begin_with_the_error(tail, message):
    assert describe_failure(tail, minimum=MINIMUM) == message
