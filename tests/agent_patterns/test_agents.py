"""A ReAct agent with tools, and memory that outlives a thread."""

from __future__ import annotations

from uuid import uuid4

from tests.agent_patterns.conversation import interrupt_values, message_texts


def test_an_agent_calls_its_tools_and_answers(start_conversation):
    prompt = 'call multiply {"a": 6, "b": 7}; weather {"city": "Oslo"}'

    assert start_conversation("assistant").say(prompt) == [
        ("human", prompt),
        ("ai", ""),
        ("tool", "42"),
        ("tool", "sunny in Oslo"),
        ("ai", "Tool results: 42 | sunny in Oslo"),
    ]


def test_an_agent_sees_earlier_messages_of_its_thread(start_conversation):
    agent = start_conversation("assistant")
    agent.say("hello")

    assert agent.say("again") == [
        ("human", "hello"),
        ("ai", "You wrote: hello"),
        ("human", "again"),
        ("ai", "You wrote: again"),
    ]


def test_a_reviewer_edits_the_arguments_of_an_interrupted_tool(start_conversation):
    agent = start_conversation("assistant")
    message = {"role": "user", "content": 'call book_hotel {"city": "Oslo", "nights": 3}'}

    interrupted = agent.begin(messages=[message])
    result = agent.answer({"type": "edit", "args": {"nights": 1}})

    assert interrupt_values(interrupted) == [
        {"action": "book_hotel", "args": {"city": "Oslo", "nights": 3}}
    ]
    assert message_texts(result)[-2:] == [
        ("tool", "booked Oslo for 1"),
        ("ai", "Tool results: booked Oslo for 1"),
    ]


def test_two_interrupted_tools_get_separate_answers(start_conversation):
    agent = start_conversation("assistant")
    prompt = 'call book_hotel {"city": "Oslo"}; book_hotel {"city": "Bergen"}'

    interrupted = agent.begin(messages=[{"role": "user", "content": prompt}])
    ids = {entry["value"]["args"]["city"]: entry["id"] for entry in interrupted["__interrupt__"]}
    result = agent.answer({ids["Oslo"]: True, ids["Bergen"]: False})

    assert message_texts(result)[-1] == (
        "ai",
        "Tool results: booked Oslo for 1 | booking refused",
    )


def test_tokens_are_streamed_one_by_one(start_conversation):
    events = start_conversation("assistant").stream(
        "messages-tuple", input={"messages": [{"role": "user", "content": "words 5"}]}
    )

    words = [data[0]["content"] for name, data in events if name == "messages"]
    assert [word for word in words if word] == ["word0", " word1", " word2", " word3", " word4"]


def test_stored_facts_are_shared_by_threads_of_one_user(start_conversation):
    user = {"configurable": {"user_id": str(uuid4())}}

    first = start_conversation("remembering").say("remember: likes tea", config=user)
    second = start_conversation("remembering").say("what do I like?", config=user)

    assert first[-1] == ("ai", "You wrote: I know: likes tea")
    assert second[-1] == ("ai", "You wrote: I know: likes tea")


def test_stored_facts_of_one_user_are_hidden_from_another(start_conversation):
    ann, bob = ({"configurable": {"user_id": str(uuid4())}} for _ in range(2))
    start_conversation("remembering").say("remember: likes tea", config=ann)

    answer = start_conversation("remembering").say("what do I like?", config=bob)

    assert answer[-1] == ("ai", "You wrote: I know: nothing")


def test_the_client_reads_and_deletes_facts_of_an_agent(start_conversation, client):
    user = str(uuid4())
    config = {"configurable": {"user_id": user}}
    start_conversation("remembering").say("remember: likes tea", config=config)

    [item] = client.store.search_items(["facts", user])["items"]
    client.store.delete_item(["facts", user], item["key"])

    assert item["value"] == {"fact": "likes tea"}
    answer = start_conversation("remembering").say("what do I like?", config=config)
    assert answer[-1] == ("ai", "You wrote: I know: nothing")
