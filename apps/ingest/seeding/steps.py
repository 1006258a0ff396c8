"""A library of steps: the content of runs, compressed once and used for many runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate
from random import Random
from typing import Any

from apps.core.json import dumps
from apps.ingest.previews import build_preview, one_line
from apps.trace_store import Payload, run_store

AGENTS = ("support-agent", "research-agent", "sql-agent", "travel-planner", "code-reviewer")
CHAINS = ("plan", "route", "gather", "draft", "review", "summarize")
TOOLS = ("search_orders", "get_weather", "run_sql", "send_email", "calculator", "fetch_page")
MODELS = (  # name, provider, share, dollars for a million tokens in and out
    ("gpt-4o-mini", "openai", 40, "0.15", "0.60"),
    ("gpt-4o", "openai", 22, "2.50", "10.00"),
    ("claude-sonnet-4", "anthropic", 20, "3.00", "15.00"),
    ("gemini-2.5-flash", "google_genai", 12, "0.30", "2.50"),
    ("llama-3.3-70b", "groq", 5, "0.59", "0.79"),
    ("mistral-large", "mistralai", 1, "2.00", "6.00"),
)
_ERRORS = (
    "RateLimitError('429: too many requests')",
    "TimeoutError('no answer within 30 s')",
    "ValueError('amount: a number was expected')",
    "KeyError('customer')",
)
_MILLION = Decimal(1_000_000)
_RUNTIME = {
    "runtime": {"sdk": "langsmith-py", "sdk_version": "0.14.0", "library": "langsmith"},
}

_CONSONANTS = "bdfgklmnprstvwz"
_VOWELS = "aeiou"
_VOCABULARY = 8000
_TEXT_LENGTH = 400_000
_MARKS = (". ", ", ", "; ", "?\n", " / ", ": ")

RARE_WORDS = tuple(f"kestrel{number:02d}" for number in range(20))
"""Each word occurs in about one of 50,000 runs."""


class TextGenerator:
    """Excerpts of any length from one long text."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        syllables = [consonant + vowel for consonant in _CONSONANTS for vowel in _VOWELS]
        words = sorted(
            {"".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(_VOCABULARY)}
        )
        rng.shuffle(words)
        weights = list(accumulate(1 / (rank + 3) for rank in range(len(words))))
        drawn = rng.choices(words, cum_weights=weights, k=_TEXT_LENGTH // 7)
        self._text = "".join(
            word + (_MARKS[index % len(_MARKS)] if index % 11 == 0 else " ")
            for index, word in enumerate(drawn)
        )

    def excerpt(self, length: int) -> str:
        begin = int(self._rng.random() * (len(self._text) - length))
        return self._text[begin : begin + length].strip()

    def sentence(self) -> str:
        return self.excerpt(self._rng.randint(30, 110)).replace("\n", " ").capitalize()


@dataclass(frozen=True, slots=True)
class StepContent:
    """The content of a run, independent of its position in a trace."""

    name: str
    run_type: str
    seconds: float
    payloads: Mapping[Payload, bytes]
    inputs: Any
    outputs: Any
    error: str | None
    inputs_preview: str | None
    outputs_preview: str | None
    error_preview: str | None
    model: str | None
    provider: str | None
    usage: Mapping[str, Any]


class StepLibrary:
    """About `size` steps with each name, for agents, chains, tools, retrievers and models."""

    def __init__(self, seed: int, size: int = 120) -> None:
        self.rng = Random(f"steps {seed}")  # noqa: S311  (no secrets here)
        self.texts = TextGenerator(self.rng)
        self.agents = self._build_many(size, AGENTS, self._agent)
        self.chains = self._build_many(size, CHAINS, self._chain)
        self.tools = self._build_many(size, TOOLS, self._tool)
        self.retrievers = self._build_many(3 * size, ("VectorStoreRetriever",), self._retriever)
        self.models = [
            step
            for number, (_, _, share, _, _) in enumerate(MODELS)
            for step in self._build_many(max(size * share // 10, 4), (str(number),), self._model)
        ]

    def with_word(self, step: StepContent, word: str) -> StepContent:
        """The step with an additional word in its outputs."""
        outputs = {**(step.outputs or {}), "note": f"{self.texts.excerpt(40)} {word}"}
        return self._step(
            step.name, step.run_type, step.seconds, step.inputs, outputs, model=step.model
        )

    def _build_many(
        self, size: int, names: Sequence[str], build_step: Callable[[str], StepContent]
    ) -> list[StepContent]:
        return [build_step(name) for name in names for _ in range(size)]

    def _seconds(self, median: float, spread: float) -> float:
        return self.rng.lognormvariate(math.log(median), spread)

    def _length(self) -> int:
        """The length of a text: most are short, one in fifty is very long."""
        share = self.rng.random()
        if share < 0.9:
            return int(min(self.rng.lognormvariate(math.log(500), 0.9), 12_000)) + 40
        return int(4_000 * (4 if share < 0.98 else 20) ** self.rng.random())

    def _agent(self, name: str) -> StepContent:
        question, answer = self.texts.sentence(), self.texts.excerpt(self._length() // 3 + 40)
        messages = [{"role": "user", "content": question}]
        outputs = {"messages": [*messages, {"role": "assistant", "content": answer}]}
        return self._step(name, "chain", 0.02, {"messages": messages}, outputs)

    def _chain(self, name: str) -> StepContent:
        goal = {"goal": self.texts.sentence(), "attempt": self.rng.randint(1, 3)}
        return self._step(name, "chain", 0.01, goal, {"result": self.texts.sentence()})

    def _tool(self, name: str) -> StepContent:
        inputs = {"query": self.texts.sentence(), "limit": self.rng.choice((5, 10, 20))}
        rows = [
            {"id": self.rng.randint(1, 99_999), "title": self.texts.excerpt(40), "score": 0.5}
            for _ in range(self.rng.randint(1, 6))
        ]
        return self._step(name, "tool", self._seconds(0.15, 1), inputs, {"rows": rows})

    def _retriever(self, name: str) -> StepContent:
        length = self._length()
        documents = [
            {
                "page_content": self.texts.excerpt(length // 3 + 30),
                "metadata": {"source": f"doc-{n}"},
            }
            for n in range(self.rng.randint(2, 5))
        ]
        inputs = {"query": self.texts.sentence()}
        return self._step(
            name, "retriever", self._seconds(0.08, 0.6), inputs, {"documents": documents}
        )

    def _model(self, number: str) -> StepContent:
        model = MODELS[int(number)][0]
        messages = [
            {"role": "system", "content": self.texts.excerpt(300)},
            {"role": "user", "content": self.texts.excerpt(self._length())},
        ]
        answer = self.texts.excerpt(self._length() // 2 + 20)
        prompt = sum(len(message["content"]) for message in messages) // 4
        completion = len(answer) // 4 + 1
        outputs = {
            "messages": [{"role": "assistant", "content": answer}],
            "usage_metadata": {
                "input_tokens": prompt,
                "output_tokens": completion,
                "total_tokens": prompt + completion,
            },
        }
        seconds = self._seconds(1.6, 0.8)
        return self._step("ChatModel", "llm", seconds, {"messages": messages}, outputs, model=model)

    def with_error(self, step: StepContent) -> StepContent:
        """The step with an error instead of outputs."""
        error = self.rng.choice(_ERRORS) + "\n\nTraceback (most recent call last):\n"
        error += self.texts.excerpt(400)
        return self._step(
            step.name, step.run_type, step.seconds, step.inputs, None, model=step.model, error=error
        )

    def _step(
        self,
        name: str,
        run_type: str,
        seconds: float,
        inputs: Any,
        outputs: Any,
        *,
        model: str | None = None,
        error: str | None = None,
    ) -> StepContent:
        payloads = {"inputs": inputs, "outputs": outputs, "extra": _RUNTIME, "error": error}
        payloads = {name: value for name, value in payloads.items() if value is not None}
        compressed = run_store.compress([dumps(value) for value in payloads.values()])
        return StepContent(
            name=name,
            run_type=run_type,
            seconds=seconds,
            payloads=dict(zip(map(Payload, payloads), compressed, strict=True)),
            inputs=inputs,
            outputs=outputs,
            error=error,
            inputs_preview=build_preview(inputs),
            outputs_preview=build_preview(outputs),
            error_preview=None if error is None else one_line(error),
            model=model,
            provider=next((item[1] for item in MODELS if item[0] == model), None),
            usage=_usage(model, outputs),
        )


def _usage(model: str | None, outputs: Any) -> dict[str, Any]:
    tokens = (outputs or {}).get("usage_metadata")
    if model is None or tokens is None:
        return {}
    _, _, _, price_in, price_out = next(item for item in MODELS if item[0] == model)
    prompt_cost = tokens["input_tokens"] * Decimal(price_in) / _MILLION
    completion_cost = tokens["output_tokens"] * Decimal(price_out) / _MILLION
    return {
        "prompt_tokens": tokens["input_tokens"],
        "completion_tokens": tokens["output_tokens"],
        "total_tokens": tokens["total_tokens"],
        "prompt_cost": prompt_cost,
        "completion_cost": completion_cost,
        "total_cost": prompt_cost + completion_cost,
    }
