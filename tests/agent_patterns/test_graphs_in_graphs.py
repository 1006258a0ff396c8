"""Subgraphs with their own state, with memory of their own, and many at once."""

from __future__ import annotations

from tests.agent_patterns.talk import spoken


def test_each_graph_speaks_in_terms_of_its_own_state(talk):
    events = talk("greetings").stream(
        "updates", "custom", input={"my_key": "Bob"}, stream_subgraphs=True
    )

    assert events == [
        ("updates", {"parent_1": {"my_key": "hi Bob"}}),
        ("custom|call_child|call_grandchild", {"heard": "hi Bob"}),
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


def test_a_subgraph_with_memory_goes_on_where_its_thread_left_it(talk):
    first, second = talk("counting"), talk("counting")

    said = [first.begin(word=word)["said"] for word in ("one", "two", "three")]

    assert said == ["one", "one two", "one two three"]
    assert second.begin(word="else")["said"] == "else"


def test_map_and_reduce(talk):
    events = talk("contest").stream("updates", input={"topic": "cat"})

    kinds = ["shy cat", "proud cat", "sleepy cat"]
    jokes = [f"a {kind} walks into a bar" for kind in kinds]
    told = [data["generate_joke"]["jokes"][0] for _, data in events if "generate_joke" in data]
    assert events[0] == ("updates", {"generate_topics": {"subjects": kinds}})
    assert sorted(told) == sorted(jokes)
    assert events[-1] == ("updates", {"best_joke": {"best": jokes[2]}})


def test_map_and_reduce_keeps_the_order_of_sending(talk):
    answer = talk("contest").begin(topic="cat")

    assert answer["jokes"] == [
        f"a {kind} cat walks into a bar" for kind in ("shy", "proud", "sleepy")
    ]


def test_an_agent_hands_over_and_the_next_one_stays(talk):
    office = talk("handoff")

    assert office.say("call transfer_to_accountant {}") == [
        ("human", "call transfer_to_accountant {}"),
        ("ai", ""),
        ("tool", "over to the accountant"),
        ("ai", "The tools said: over to the accountant"),
    ]
    office.say('call multiply {"a": 2, "b": 3}')

    values = office.state["values"]
    assert values["active"] == "accountant"
    assert spoken(values)[-1] == ("ai", "The tools said: 6")
    assert [message["name"] for message in values["messages"] if message["type"] == "ai"] == [
        "receptionist",
        "accountant",
        "accountant",
        "accountant",
    ]
