"""Time travel: the history of a thread is read, replayed and forked."""

from __future__ import annotations

SOCKS = "Why did the socks in the dryer cross the road?"
CHICKENS = "Why did the chickens cross the road?"


def find_state_before_joke(conversation):
    return next(state for state in conversation.history() if state["next"] == ["write_joke"])


def test_history_has_the_state_after_each_step(start_conversation):
    jokes = start_conversation("jokes")
    assert jokes.begin() == {"topic": "socks in the dryer", "joke": SOCKS}

    assert [
        (state["metadata"]["step"], state["next"], state["values"]) for state in jokes.history()
    ] == [
        (2, [], {"topic": "socks in the dryer", "joke": SOCKS}),
        (1, ["write_joke"], {"topic": "socks in the dryer"}),
        (0, ["generate_topic"], {}),
        (-1, ["__start__"], {}),
    ]


def test_replay_runs_only_the_steps_after_the_checkpoint(start_conversation):
    jokes = start_conversation("jokes")
    jokes.begin()

    events = jokes.stream(
        "updates", input=None, checkpoint_id=find_state_before_joke(jokes)["checkpoint_id"]
    )

    assert events == [("updates", {"write_joke": {"joke": SOCKS}})]


def test_an_updated_checkpoint_forks_the_history_and_keeps_the_old_branch(
    start_conversation, client
):
    jokes = start_conversation("jokes")
    jokes.begin()
    initial_length = len(jokes.history())

    new_checkpoint = client.threads.update_state(
        jokes.thread,
        {"topic": "chickens"},
        checkpoint_id=find_state_before_joke(jokes)["checkpoint_id"],
    )
    answer = jokes.run(input=None, checkpoint_id=new_checkpoint["checkpoint_id"])

    history = jokes.history()
    assert answer == {"topic": "chickens", "joke": CHICKENS}
    assert jokes.state["values"] == answer
    assert [state["values"]["joke"] for state in history if "joke" in state["values"]] == [
        CHICKENS,
        SOCKS,
    ]
    assert len(history) > initial_length
    assert len([state for state in history if state["metadata"]["source"] == "update"]) == 1


def test_a_failed_graph_resumes_at_the_step_that_failed(start_conversation, client):
    conversation = start_conversation("publishing")
    failure = conversation.run(input={"press_broken": True}, raise_error=False)
    log_before_failure = conversation.state["values"]["log"]

    client.threads.update_state(conversation.thread, {"press_broken": False}, as_node="write")
    answer = conversation.run(input=None)

    assert failure["__error__"] == {"error": "RuntimeError", "message": "the press is broken"}
    assert answer["log"] == [*log_before_failure, "printed"]
    assert conversation.status == "idle"
