"""The model: a real one where a key is, else a script that behaves like one."""

import ast
import operator
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable


def choose_model() -> BaseChatModel:
    """OpenAI's or Anthropic's model when its key and its package are there; else the script."""
    if os.environ.get("OPENAI_API_KEY"):
        try:
            from langchain_openai import ChatOpenAI

            return ChatOpenAI(model=os.environ.get("OPENAI_MODEL", "gpt-4.1-mini"))
        except ImportError:
            pass
    if os.environ.get("ANTHROPIC_API_KEY"):
        try:
            from langchain_anthropic import ChatAnthropic

            name = os.environ.get("ANTHROPIC_MODEL", "claude-haiku-4-5")
            return ChatAnthropic(model_name=name, timeout=60, stop=None)
        except ImportError:
            pass
    return ScriptedModel()


class ScriptedModel(BaseChatModel):
    """Offline and deterministic: the same conversation always gets the same answer.

    It reads the last message, calls a tool when that asks for one, and streams words.
    """

    tools: list[str] = []

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Runnable[Any, AIMessage]:
        return self.model_copy(update={"tools": [tool.name for tool in tools]})

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any
    ) -> ChatResult:
        text, calls = self._decide(messages)
        usage = _usage(messages, text)
        message = AIMessage(content=text, tool_calls=calls, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any
    ) -> Iterator[ChatGenerationChunk]:
        text, calls = self._decide(messages)
        for piece in re.findall(r"\S+\s*", text):
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=piece))
            if run_manager:
                run_manager.on_llm_new_token(piece, chunk=chunk)
            yield chunk
        last = AIMessageChunk(
            content="", tool_calls=calls, usage_metadata=_usage(messages, text), chunk_position="last"
        )
        yield ChatGenerationChunk(message=last)

    def _decide(self, messages: list[BaseMessage]) -> tuple[str, list[dict[str, Any]]]:
        """What to say, and which tools to call first."""
        last = messages[-1]
        if isinstance(last, ToolMessage):
            return _ANSWERS.get(last.name or "", "{}").format(last.text), []
        prompt = last.text if isinstance(last, HumanMessage) else ""
        call = _wanted_call(prompt)
        if call is not None and call[0] in self.tools:
            name, arguments = call
            # Derived from the conversation, so that a repeated run repeats its ids.
            number = uuid.uuid5(uuid.NAMESPACE_OID, f"{len(messages)}:{prompt}").hex[:24]
            return "", [{"name": name, "args": arguments, "id": f"call_{number}", "type": "tool_call"}]
        return (
            f"You said: {prompt.strip() or 'nothing'}. I can calculate, look things up in the notes,"
            " and send mail once you approve."
        ), []


_ANSWERS = {
    "calculate": "The result is {}.",
    "look_up": "The notes say: {}",
    "send_mail": "{}",
}
_SUM = re.compile(r"[-+*/(). 0-9]*\d\s*[-+*/]\s*[-+*/(). 0-9]*\d[) ]*")
_MAIL = re.compile(r"\b(?:mail|write|send)\b.*?\b(?:to\s+)?([\w.+-]+@[\w-]+\.[\w.-]*\w)", re.I)
_SUBJECT = re.compile(r"\babout\s+(.+?)[.?!]*$", re.I)


def _wanted_call(prompt: str) -> tuple[str, dict[str, Any]] | None:
    subject = _SUBJECT.search(prompt)
    if mail := _MAIL.search(prompt):
        about = subject[1] if subject else "your question"
        return "send_mail", {"to": mail[1], "text": f"Hello, this is about {about}."}
    if match := _SUM.search(prompt):
        return "calculate", {"expression": match[0].strip()}
    if re.search(r"\b(?:know|notes?|look up|tell me|find)\b", prompt, re.I) and subject:
        return "look_up", {"question": subject[1]}
    return None


def _usage(messages: list[BaseMessage], text: str) -> dict[str, int]:
    """Words stand for tokens."""
    read = sum(len(message.text.split()) for message in messages)
    written = len(text.split())
    return {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}


_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


def value_of(expression: str) -> float:
    """The value of a sum of numbers; raises `ValueError` for anything else."""

    def value(node: ast.AST) -> float:
        match node:
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(left), value(right))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(operand))
        raise ValueError(f"{expression!r} is not a sum of numbers")

    try:
        return value(ast.parse(expression, mode="eval").body)
    except (SyntaxError, ZeroDivisionError) as error:
        raise ValueError(str(error)) from None
