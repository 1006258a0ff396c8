"""Subgraphs with their own state, with their own checkpoints, and in parallel."""

from __future__ import annotations

from tests.agent_patterns.conversation import message_texts


def test_subgraph_events_carry_the_state_of_their_own_graph(start_conversation):
    events = start_conversation("greetings").stream(
        "updates", "custom", input={"my_key": "Bob"}, stream_subgraphs=True
    )

    assert events == [
        ("updates", {"parent_1": {"my_key": "hi Bob"}}),
        ("custom|call_child|call_grandchild", {"received": "hi Bob"}),
        (
            "updates|call_child|call_grandchild",
            {"grandchild_1": {"my_grandchild_key": "hi Bob, how are you"}},
        ),
        (
            "updates|call_child",
            {"call_grandchild": {"my_child_key": "hi Bob, how are you today?"}},
        ),
        ("updates", {"call_child": {"my_key": "hi Bob, how are you today?"}}),
        ("updates", {"parent_2": {"my_key": "hi Bob, how are you today? bye!"}}),
    ]


def test_a_subgraph_with_a_checkpointer_keeps_its_state_per_thread(start_conversation):
    first, second = start_conversation("counting"), start_conversation("counting")

    transcripts = [first.begin(word=word)["transcript"] for word in ("one", "two", "three")]

    assert transcripts == ["one", "one two", "one two three"]
    assert second.begin(word="else")["transcript"] == "else"


def test_map_and_reduce_streams_each_branch_and_the_result(start_conversation):
    events = start_conversation("contest").stream("updates", input={"topic": "cat"})

    kinds = ["shy cat", "proud cat", "sleepy cat"]
    jokes = [f"a {kind} walks into a bar" for kind in kinds]
    generated_jokes = [
        data["generate_joke"]["jokes"][0] for _, data in events if "generate_joke" in data
    ]
    assert events[0] == ("updates", {"generate_topics": {"subjects": kinds}})
    assert sorted(generated_jokes) == sorted(jokes)
    assert events[-1] == ("updates", {"best_joke": {"best": jokes[2]}})


def test_map_and_reduce_keeps_the_order_of_its_branches(start_conversation):
    answer = start_conversation("contest").begin(topic="cat")

    assert answer["jokes"] == [
        f"a {kind} cat walks into a bar" for kind in ("shy", "proud", "sleepy")
    ]


def test_a_conversation_stays_with_the_agent_it_was_handed_to(start_conversation):
    office = start_conversation("handoff")

    assert office.say("call transfer_to_accountant {}") == [
        ("human", "call transfer_to_accountant {}"),
        ("ai", ""),
        ("tool", "over to the accountant"),
        ("ai", "Tool results: over to the accountant"),
    ]
    office.say('call multiply {"a": 2, "b": 3}')

    values = office.state["values"]
    assert values["active"] == "accountant"
    assert message_texts(values)[-1] == ("ai", "Tool results: 6")
    assert [message["name"] for message in values["messages"] if message["type"] == "ai"] == [
        "receptionist",
        "accountant",
        "accountant",
        "accountant",
    ]
