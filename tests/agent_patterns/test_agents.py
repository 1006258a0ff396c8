"""A ReAct agent with tools, and memory that outlives a thread."""

from __future__ import annotations

from uuid import uuid4

from tests.agent_patterns.talk import questions, spoken


def test_an_agent_calls_its_tools_and_answers(talk):
    said = 'call multiply {"a": 6, "b": 7}; weather {"city": "Oslo"}'

    assert talk("assistant").say(said) == [
        ("human", said),
        ("ai", ""),
        ("tool", "42"),
        ("tool", "sunny in Oslo"),
        ("ai", "The tools said: 42 | sunny in Oslo"),
    ]


def test_an_agent_remembers_its_thread(talk):
    agent = talk("assistant")
    agent.say("hello")

    assert agent.say("again") == [
        ("human", "hello"),
        ("ai", "You said: hello"),
        ("human", "again"),
        ("ai", "You said: again"),
    ]


def test_a_tool_waits_for_a_person_who_changes_what_it_does(talk):
    agent = talk("assistant")
    said = {"role": "user", "content": 'call book_hotel {"city": "Oslo", "nights": 3}'}

    asked = agent.begin(messages=[said])
    answered = agent.answer({"type": "edit", "args": {"nights": 1}})

    assert questions(asked) == [{"action": "book_hotel", "args": {"city": "Oslo", "nights": 3}}]
    assert spoken(answered)[-2:] == [
        ("tool", "booked Oslo for 1"),
        ("ai", "The tools said: booked Oslo for 1"),
    ]


def test_two_tools_that_wait_are_answered_each(talk):
    agent = talk("assistant")
    said = 'call book_hotel {"city": "Oslo"}; book_hotel {"city": "Bergen"}'

    asked = agent.begin(messages=[{"role": "user", "content": said}])
    ids = {entry["value"]["args"]["city"]: entry["id"] for entry in asked["__interrupt__"]}
    answered = agent.answer({ids["Oslo"]: True, ids["Bergen"]: False})

    assert spoken(answered)[-1] == (
        "ai",
        "The tools said: booked Oslo for 1 | booking refused",
    )


def test_tokens_come_one_by_one(talk):
    events = talk("assistant").stream(
        "messages-tuple", input={"messages": [{"role": "user", "content": "words 5"}]}
    )

    words = [data[0]["content"] for name, data in events if name == "messages"]
    assert [word for word in words if word] == ["word0", " word1", " word2", " word3", " word4"]


def test_what_one_thread_learns_another_one_knows(talk):
    user = {"configurable": {"user_id": str(uuid4())}}

    first = talk("remembering").say("remember: likes tea", config=user)
    second = talk("remembering").say("what do I like?", config=user)

    assert first[-1] == ("ai", "You said: I know: likes tea")
    assert second[-1] == ("ai", "You said: I know: likes tea")


def test_what_is_known_of_one_user_is_not_known_of_another(talk):
    ann, bob = ({"configurable": {"user_id": str(uuid4())}} for _ in range(2))
    talk("remembering").say("remember: likes tea", config=ann)

    answer = talk("remembering").say("what do I like?", config=bob)

    assert answer[-1] == ("ai", "You said: I know: nothing")


def test_memories_are_there_for_the_client_as_well(talk, client):
    user = str(uuid4())
    config = {"configurable": {"user_id": user}}
    talk("remembering").say("remember: likes tea", config=config)

    [item] = client.store.search_items(["facts", user])["items"]
    client.store.delete_item(["facts", user], item["key"])

    assert item["value"] == {"fact": "likes tea"}
    answer = talk("remembering").say("what do I like?", config=config)
    assert answer[-1] == ("ai", "You said: I know: nothing")
