"""Interrupts: approval, edits, validated answers and several interrupts at once."""

from __future__ import annotations

import pytest

from tests.agent_patterns.conversation import interrupt_values


@pytest.mark.parametrize(
    ("answer", "decision", "result"),
    [(True, "approved", "paid 100"), (False, "rejected", "nothing paid")],
)
def test_an_approval_selects_the_next_node(start_conversation, answer, decision, result):
    payment = start_conversation("approval")

    interrupted = payment.begin(amount=100)
    assert interrupted["amount"] == 100
    assert interrupt_values(interrupted) == [{"question": "Pay this?", "amount": 100}]
    assert (payment.status, payment.state["next"]) == ("interrupted", ["approval"])

    final_state = payment.answer(answer)
    assert final_state == {"amount": 100, "decision": decision, "result": result}
    assert (payment.status, payment.state["next"]) == ("idle", [])


def test_an_edited_summary_replaces_the_generated_one(start_conversation):
    text = start_conversation("editing")

    interrupted = text.begin()
    assert interrupt_values(interrupted) == [
        {"task": "Correct the summary.", "summary": "The cat sat on teh mat."}
    ]

    final_state = text.answer({"summary": "The cat sat on the mat."})
    assert final_state == {
        "summary": "The cat sat on the mat.",
        "published": "THE CAT SAT ON THE MAT.",
    }


def test_a_node_repeats_its_question_until_the_answer_is_valid(start_conversation):
    form = start_conversation("form")
    first = form.begin()

    results = [first, *(form.answer(result) for result in ("Ann", "old", -1))]

    assert [interrupt_values(result) for result in results] == [
        ["What is your name?"],
        ["What is your age?"],
        ["'old' is not an age. What is your age?"],
        ["-1 is not an age. What is your age?"],
    ]
    assert form.answer(30) == {"name": "Ann", "age": 30}


def test_parallel_interrupts_are_answered_in_one_command(start_conversation):
    text = start_conversation("revising")

    interrupted = text.begin(title="Catz", body="Thay purr.")
    ids = {entry["value"]["revise"]: entry["id"] for entry in interrupted["__interrupt__"]}
    assert sorted(ids) == ["Catz", "Thay purr."]
    assert sorted(text.state["next"]) == ["revise body", "revise title"]

    final_state = text.answer({ids["Catz"]: "Cats", ids["Thay purr."]: "They purr."})
    assert final_state == {"title": "Cats", "body": "They purr."}


def test_parallel_interrupts_are_answered_one_by_one(start_conversation):
    text = start_conversation("revising")
    interrupted = text.begin(title="Catz", body="Thay purr.")
    ids = {entry["value"]["revise"]: entry["id"] for entry in interrupted["__interrupt__"]}

    partial = text.answer({ids["Catz"]: "Cats"})
    assert interrupt_values(partial) == [{"revise": "Thay purr."}]
    assert text.status == "interrupted"

    assert text.answer({ids["Thay purr."]: "They purr."}) == {
        "title": "Cats",
        "body": "They purr.",
    }


def test_a_finished_task_does_not_run_again_after_an_interrupt(start_conversation):
    essay = start_conversation("essay")

    [interrupt] = interrupt_values(essay.run(input="cats"))
    final_state = essay.answer(True)

    assert interrupt["essay"].startswith("An essay about cats (")
    assert final_state == {"essay": interrupt["essay"], "approved": True}
