"""The past of a thread: looked at, replayed, and changed into another future."""

from __future__ import annotations

SOCKS = "Why did the socks in the dryer cross the road?"
CHICKENS = "Why did the chickens cross the road?"


def before_joke(talk):
    return next(state for state in talk.history() if state["next"] == ["write_joke"])


def test_the_past_is_there_step_by_step(talk):
    jokes = talk("jokes")
    assert jokes.begin() == {"topic": "socks in the dryer", "joke": SOCKS}

    assert [
        (state["metadata"]["step"], state["next"], state["values"]) for state in jokes.history()
    ] == [
        (2, [], {"topic": "socks in the dryer", "joke": SOCKS}),
        (1, ["write_joke"], {"topic": "socks in the dryer"}),
        (0, ["generate_topic"], {}),
        (-1, ["__start__"], {}),
    ]


def test_replay_does_only_what_came_after(talk):
    jokes = talk("jokes")
    jokes.begin()

    events = jokes.stream("updates", input=None, checkpoint_id=before_joke(jokes)["checkpoint_id"])

    assert events == [("updates", {"write_joke": {"joke": SOCKS}})]


def test_a_changed_past_has_another_future_and_the_old_one_stays(talk, client):
    jokes = talk("jokes")
    jokes.begin()
    before = len(jokes.history())

    changed = client.threads.update_state(
        jokes.thread, {"topic": "chickens"}, checkpoint_id=before_joke(jokes)["checkpoint_id"]
    )
    answer = jokes.run(input=None, checkpoint_id=changed["checkpoint_id"])

    history = jokes.history()
    assert answer == {"topic": "chickens", "joke": CHICKENS}
    assert jokes.state["values"] == answer
    assert [state["values"]["joke"] for state in history if "joke" in state["values"]] == [
        CHICKENS,
        SOCKS,
    ]
    assert len(history) > before
    assert len([state for state in history if state["metadata"]["source"] == "update"]) == 1


def test_after_a_failure_the_graph_goes_on_at_the_step_that_failed(talk, client):
    press = talk("publishing")
    failed = press.run(input={"press_broken": True}, raise_error=False)
    written = press.state["values"]["log"]

    client.threads.update_state(press.thread, {"press_broken": False}, as_node="write")
    answer = press.run(input=None)

    assert failed["__error__"] == {"error": "RuntimeError", "message": "the press is broken"}
    assert answer["log"] == [*written, "printed"]
    assert press.status == "idle"
