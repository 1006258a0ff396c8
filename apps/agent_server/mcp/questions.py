"""The interrupts of graphs as requests to MCP clients, and the clients' answers as resume values.

An interrupt is a form for the user: its value names the fields by `requestedSchema`, or the form
is one text. A value with `inputRequests` names the requests themselves, as the protocol writes
them: forms, calls of the client's model (`sampling/createMessage`) and its roots (`roots/list`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from apps.agent_server.a2a.content import to_question_parts
from apps.agent_server.services.graph_schemas import find_problem
from apps.core.json import dumps, dumps_text
from apps.core.mcp.messages import (
    INVALID_PARAMS,
    MISSING_CAPABILITY,
    JSONObject,
    RpcError,
    offered,
)

ELICIT, SAMPLE, LIST_ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"
CAPABILITIES = ("elicitation", "sampling", "roots")
"""Of clients; those that can answer."""
ANSWER = "answer"
"""The field of the form that the user fills in."""
SCHEMA_FIELD, REQUESTS_FIELD = "requestedSchema", "inputRequests"
MAX_SCHEMA_BYTES = 16 * 1024
MAX_REQUESTS, MAX_NAME, MAX_REQUESTS_BYTES = 16, 64, 64 * 1024
"""Of the requests that one interrupt names, and of their names."""
_FIELD_TYPES = ("string", "number", "integer", "boolean", "array")
_SCHEMA: JSONObject = {
    "type": "object",
    "properties": {ANSWER: {"type": "string", "title": "Answer"}},
    "required": [ANSWER],
}


class Declined(Exception):
    """The user does not answer."""


class Question(NamedTuple):
    """A request to a client that an interrupt asks for."""

    key: str
    """Unique among the questions of a run."""
    interrupt_id: str
    name: str | None
    """The name that the graph gives the request; None if the interrupt is the question."""
    method: str
    params: JSONObject
    has_fields: bool = True
    """Whether the graph named the fields of the form."""

    @property
    def capability(self) -> str:
        return self.method.partition("/")[0]

    def as_request(self) -> JSONObject:
        return {"method": self.method, "params": self.params}


def offered_by(capabilities: Any) -> frozenset[str]:
    """Those capabilities of a client that questions need; a form is the mode of old clients."""
    names = offered(capabilities, CAPABILITIES)
    modes = capabilities["elicitation"] if "elicitation" in names else {}
    return names - {"elicitation"} if modes and "form" not in modes else names


def to_questions(interrupts: Sequence[JSONObject]) -> list[Question]:
    """The questions of open interrupts; the graph's names are keys if there is one interrupt."""
    questions: list[Question] = []
    for interrupt in interrupts:
        interrupt_id = str(interrupt["id"])
        named = _named_requests(interrupt.get("value"))
        for name, (method, params) in (named or {}).items():
            key = name if len(interrupts) == 1 else f"{interrupt_id}:{name}"
            questions.append(Question(key, interrupt_id, name, method, params))
        if named is None:
            form = _form_of(interrupt.get("value"))
            params = {"message": _text_of(interrupt), SCHEMA_FIELD: form or _SCHEMA}
            question = Question(interrupt_id, interrupt_id, None, ELICIT, params, form is not None)
            questions.append(question)
    return questions


def select(questions: Iterable[Question], capabilities: Collection[str]) -> list[Question]:
    """The questions that a client with these capabilities can answer.

    The graph gets null for the others. Raises `RpcError` if nothing of an interrupt is left.
    """
    questions = list(questions)
    selection = [question for question in questions if question.capability in capabilities]
    unasked = {question.interrupt_id for question in questions}
    unasked -= {question.interrupt_id for question in selection}
    if not unasked:
        return selection
    lost = [question for question in questions if question.interrupt_id in unasked]
    texts = [question.params.get("message", question.method) for question in lost]
    raise RpcError(
        MISSING_CAPABILITY,
        f"The assistant asks for input that the client does not offer: {dumps_text(texts)}",
        status=400,
        data={"requiredCapabilities": {question.capability: {} for question in lost}},
    )


def to_requests(questions: Iterable[Question]) -> dict[str, JSONObject]:
    return {question.key: question.as_request() for question in questions}


def read_responses(responses: Any) -> JSONObject:
    """The answers of a client by key, if it sent any. Raises `RpcError` for anything else."""
    if responses is None:
        return {}
    if not isinstance(responses, dict):
        raise RpcError(INVALID_PARAMS, "inputResponses: must be an object.")
    return responses


def to_resume_value(questions: Iterable[Question], responses: Mapping[str, Any]) -> Any:
    """The value that resumes the run: one answer, or several by interrupt.

    The answer to an interrupt that names its requests has a member for each of them, null without
    a response. Raises `Declined`, or `RpcError` if an answer has another form.
    """
    answers: JSONObject = {}
    for question in questions:
        answer = None
        if question.key in responses:
            answer = read_answer(question, responses[question.key])
        if question.name is None:
            answers[question.interrupt_id] = answer
        else:
            answers.setdefault(question.interrupt_id, {})[question.name] = answer
    return next(iter(answers.values())) if len(answers) == 1 else answers


def read_answer(question: Question, response: Any) -> Any:
    """The user's text or fields, the message of the client's model, or its roots."""
    fields = response if isinstance(response, dict) else {}
    if question.method == SAMPLE:
        return _require(response, "content" in fields, "a message with role and content.")
    if question.method == LIST_ROOTS:
        return _require(response, isinstance(fields.get("roots"), list), "a list of roots.")
    action, content = fields.get("action"), fields.get("content")
    if action in {"decline", "cancel"}:
        raise Declined
    is_valid = action == "accept" and isinstance(content, dict)
    fields = _require(content, is_valid, "an action and content.")
    problem = find_problem(question.params[SCHEMA_FIELD], fields)
    if problem is not None:
        raise RpcError(INVALID_PARAMS, f"inputResponses: {problem}")
    return fields if question.has_fields else fields[ANSWER]


def _require(value: Any, is_valid: bool, what: str) -> Any:  # noqa: FBT001
    if not is_valid:
        raise RpcError(INVALID_PARAMS, f"inputResponses: each must have {what}")
    return value


def _named_requests(value: Any) -> dict[str, tuple[str, JSONObject]] | None:
    """The requests that the value of an interrupt names; None if one of them is not valid."""
    requests = value.get(REQUESTS_FIELD) if isinstance(value, dict) else None
    if not isinstance(requests, dict) or not 0 < len(requests) <= MAX_REQUESTS:
        return None
    if len(dumps(requests)) > MAX_REQUESTS_BYTES:
        return None
    named: dict[str, tuple[str, JSONObject]] = {}
    for name, request in requests.items():
        if not isinstance(request, dict) or not 0 < len(name) <= MAX_NAME:
            return None
        method = str(request.get("method"))
        params = _params_of(method, request.get("params", {}))
        if params is None:
            return None
        named[name] = method, params
    return named


def _params_of(method: str, params: Any) -> JSONObject | None:
    """The parameters of a request as clients take them; None if they are not valid."""
    if not isinstance(params, dict):
        return None
    if method == LIST_ROOTS:
        return {}
    if method == SAMPLE:
        limit = params.get("maxTokens")
        is_valid = isinstance(params.get("messages"), list) and type(limit) is int and limit > 0
        return params if is_valid else None
    form = _form_of(params)
    if method != ELICIT or form is None or not isinstance(params.get("message"), str):
        return None
    return {"message": params["message"], SCHEMA_FIELD: form}


def _form_of(value: Any) -> JSONObject | None:
    """The schema that the graph asks for, if clients can show it: fields without nesting."""
    schema = value.get(SCHEMA_FIELD) if isinstance(value, dict) else None
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return None
    properties, required = schema.get("properties"), schema.get("required", [])
    is_flat = isinstance(properties, dict) and all(
        isinstance(name, str) and isinstance(field, dict) and field.get("type") in _FIELD_TYPES
        for name, field in properties.items()
    )
    if not is_flat or not isinstance(required, list) or len(dumps(schema)) > MAX_SCHEMA_BYTES:
        return None
    return {"type": "object", "properties": properties, "required": required}


def _text_of(interrupt: JSONObject) -> str:
    texts = [str(part["text"]) for part in to_question_parts([interrupt]) if "text" in part]
    if texts:
        return texts[0]
    value = interrupt.get("value")
    members = list(value.values()) if isinstance(value, dict) else []
    is_text = len(members) == 1 and isinstance(members[0], str)
    return str(members[0]) if is_text else dumps_text(value)
