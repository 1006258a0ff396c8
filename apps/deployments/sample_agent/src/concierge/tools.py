"""What the agent can do."""

from langchain_core.tools import tool
from langgraph.types import interrupt

from concierge.model import value_of


@tool
def calculate(expression: str) -> str:
    """Calculate a sum of numbers, such as 12 * 7 + 1."""
    try:
        return f"{value_of(expression):g}"
    except ValueError as error:
        return f"not to be had: {error}"


@tool
def look_up(question: str) -> str:
    """Look something up in the notes of the hotel."""
    raise RuntimeError("the research graph answers these calls")


@tool
def send_mail(to: str, text: str) -> str:
    """Send a mail. A person approves it first."""
    decision = interrupt({"action": "send_mail", "to": to, "text": text, "question": "Send it?"})
    if isinstance(decision, str):
        return f"Sent to {to}, with your words: {decision}"
    return f"Sent to {to}: {text}" if decision else f"Not sent to {to}."
