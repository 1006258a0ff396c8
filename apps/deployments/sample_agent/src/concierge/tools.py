"""The tools of the agent."""

from typing import Any

from langchain_core.tools import tool
from langgraph.types import interrupt

from concierge.model import evaluate


@tool
def calculate(expression: str) -> str:
    """Calculate an arithmetic expression, such as 12 * 7 + 1."""
    try:
        return f"{evaluate(expression):g}"
    except ValueError as error:
        return f"Cannot calculate: {error}"


@tool
def look_up(question: str) -> str:
    """Look something up in the notes of the hotel."""
    raise RuntimeError("the research graph answers these calls")


@tool
def send_mail(to: str, text: str) -> str:
    """Send a mail after a user has approved it."""
    description = f"A mail to {to} needs approval."
    while True:
        match _review("send_mail", {"to": to, "text": text}, description):
            case {"type": "approve"}:
                return f"Sent to {to}: {text}"
            case {"type": "edit", "edited_action": {"args": {"to": str(to), "text": str(text)}}}:
                return f"Sent to {to}, as edited: {text}"
            case {"type": "reject", "message": str(reason)}:
                return f"Not sent to {to}: {reason}"
            case {"type": "reject"}:
                return f"Not sent to {to}."
        description = "The answer has no valid decision. See the README of the agent."


def _review(name: str, args: dict[str, Any], description: str) -> Any:
    """Ask a user about a tool call, in the form of LangChain's human-in-the-loop middleware.

    Returns the user's decision, or `None` if the answer has none.
    """
    answer = interrupt(
        {
            "action_requests": [{"name": name, "args": args, "description": description}],
            "review_configs": [
                {"action_name": name, "allowed_decisions": ["approve", "edit", "reject"]}
            ],
        }
    )
    match answer:
        case {"decisions": [decision]}:
            return decision
    return None
