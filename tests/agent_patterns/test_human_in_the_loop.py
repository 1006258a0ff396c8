"""A person approves, edits, answers until it makes sense, and answers several questions at once."""

from __future__ import annotations

import pytest

from tests.agent_patterns.talk import questions


@pytest.mark.parametrize(
    ("answer", "decision", "result"),
    [(True, "approved", "paid 100"), (False, "rejected", "nothing paid")],
)
def test_approve_or_reject(talk, answer, decision, result):
    payment = talk("approval")

    asked = payment.begin(amount=100)
    assert asked["amount"] == 100
    assert questions(asked) == [{"question": "Pay this?", "amount": 100}]
    assert (payment.status, payment.state["next"]) == ("interrupted", ["approval"])

    answered = payment.answer(answer)
    assert answered == {"amount": 100, "decision": decision, "result": result}
    assert (payment.status, payment.state["next"]) == ("idle", [])


def test_edit_what_was_generated(talk):
    text = talk("editing")

    asked = text.begin()
    assert questions(asked) == [
        {"task": "Correct the summary.", "summary": "The cat sat on teh mat."}
    ]

    answered = text.answer({"summary": "The cat sat on the mat."})
    assert answered == {
        "summary": "The cat sat on the mat.",
        "published": "THE CAT SAT ON THE MAT.",
    }


def test_ask_again_until_the_answer_makes_sense(talk):
    form = talk("form")
    first = form.begin()

    asked = [first, *(form.answer(answer) for answer in ("Ann", "old", -1))]

    assert [questions(answer) for answer in asked] == [
        ["What is your name?"],
        ["What is your age?"],
        ["'old' is not an age. What is your age?"],
        ["-1 is not an age. What is your age?"],
    ]
    assert form.answer(30) == {"name": "Ann", "age": 30}


def test_several_questions_at_once(talk):
    text = talk("revising")

    asked = text.begin(title="Catz", body="Thay purr.")
    ids = {entry["value"]["revise"]: entry["id"] for entry in asked["__interrupt__"]}
    assert sorted(ids) == ["Catz", "Thay purr."]
    assert sorted(text.state["next"]) == ["revise body", "revise title"]

    answered = text.answer({ids["Catz"]: "Cats", ids["Thay purr."]: "They purr."})
    assert answered == {"title": "Cats", "body": "They purr."}


def test_several_questions_one_after_another(talk):
    text = talk("revising")
    asked = text.begin(title="Catz", body="Thay purr.")
    ids = {entry["value"]["revise"]: entry["id"] for entry in asked["__interrupt__"]}

    half = text.answer({ids["Catz"]: "Cats"})
    assert questions(half) == [{"revise": "Thay purr."}]
    assert text.status == "interrupted"

    assert text.answer({ids["Thay purr."]: "They purr."}) == {
        "title": "Cats",
        "body": "They purr.",
    }


def test_a_task_that_was_done_before_the_question_is_not_done_again(talk):
    essay = talk("essay")

    [asked] = questions(essay.run(input="cats"))
    answered = essay.answer(True)

    assert asked["essay"].startswith("An essay about cats (")
    assert answered == {"essay": asked["essay"], "approved": True}
