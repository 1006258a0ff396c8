import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.tracing.pages.interrupts import InterruptRequest, describe_wait, parse_requests
from tests.examples import fuzz_settings

TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    x()\n'
REFUND = "GraphInterrupt((Interrupt(value={'question': 'Refund?', 'amount': 320}, id='a'),))"


@pytest.mark.parametrize(
    "text",
    [
        REFUND,
        REFUND + TRACEBACK,
        TRACEBACK + REFUND,
        REFUND.replace("id='a'", "resumable=True, ns=['a:1'], when='during'"),
        'GraphInterrupt: [{"value": {"question": "Refund?", "amount": 320}, "id": "a"}]',
    ],
)
def test_request_is_read_from_each_form_of_the_error(text):
    assert parse_requests(text) == [InterruptRequest("Refund?", (("amount", "320"),))]
    assert describe_wait(text) == "Waiting for input: Refund?"


def test_request_of_a_plain_value_is_its_text():
    assert parse_requests("GraphInterrupt((Interrupt(value='Go on?'),))") == [
        InterruptRequest("Go on?")
    ]
    assert parse_requests("GraphInterrupt((Interrupt(value=['a', 1]),))") == [
        InterruptRequest('["a",1]')
    ]


def test_each_action_of_a_request_for_approval_is_one_request():
    text = (
        "GraphInterrupt((Interrupt(value={'action_requests': [{'name': 'send_mail', 'args': "
        "{'to': 'ann@example.com'}}, {'name': 'refund', 'args': {}}], 'review_configs': []}),))"
    )

    assert parse_requests(text) == [
        InterruptRequest("Approve send_mail?", (("to", "ann@example.com"),)),
        InterruptRequest("Approve refund?"),
    ]


def test_object_within_a_value_is_its_source_text():
    text = "GraphInterrupt((Interrupt(value={'at': datetime.date(2026, 1, 2)}, id='a'),))"

    assert parse_requests(text) == [InterruptRequest("", (("at", "datetime.date(2026, 1, 2)"),))]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "GraphInterrupt",
        "GraphInterrupt((Interrupt(value={'question': 'cut of",
        "GraphInterrupt: [1, {",
        "[" * 100_000,
        "Interrupt(value=" + "-" * 50_000 + "1)",
        "Interrupt(value=1" + "+1" * 9_000 + ")",
    ],
)
def test_unreadable_text_has_no_requests(text):
    assert parse_requests(text) == []
    assert describe_wait(text) == "Waiting for input"


@fuzz_settings(50)
@given(st.text() | st.builds("GraphInterrupt((Interrupt(value={}),))".format, st.text()))
def test_arbitrary_text_never_raises(text):
    assert describe_wait(text).startswith("Waiting for input")
