"""The tools of the agents; one of them asks for approval."""

from __future__ import annotations

from langchain_core.tools import tool
from langgraph.types import interrupt


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    if city == "Atlantis":
        raise ValueError("no such city")
    return f"sunny in {city}"


@tool
def book_hotel(city: str, nights: int = 1) -> str:
    """Book a hotel, if a person agrees."""
    answer = interrupt({"action": "book_hotel", "args": {"city": city, "nights": nights}})
    match answer:
        case {"type": "edit", "args": changed}:
            city, nights = changed.get("city", city), changed.get("nights", nights)
        case {"type": "reject"} | False:
            return "booking refused"
    return f"booked {city} for {nights}"


TOOLS = [multiply, weather, book_hotel]
