from langgraph.graph import MessagesState


class State(MessagesState):
    """The conversation, and how many letters this thread has sent."""

    letters_sent: int
