"""Embeddings of store items with the project's model (`store.index` of langgraph.json)."""

from __future__ import annotations

import asyncio
import base64
import math
import struct
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from langchain_core.embeddings import Embeddings
from langgraph.store.base.embed import ensure_embeddings, get_text_at_path, tokenize_path

from .project import AgentProject, ProjectError

T = TypeVar("T")

WHOLE_VALUE = "$"


class TextEmbedder:
    """The project's embedding function.

    Vectors are packed as little-endian 32-bit floats.
    """

    def __init__(self, embed: Any, dims: int, fields: Sequence[str] = (WHOLE_VALUE,)) -> None:
        self._embeddings: Embeddings = ensure_embeddings(embed)
        self._is_async_only = hasattr(self._embeddings, "afunc")
        self.dims = dims
        self._fields = [(field, _tokens(field)) for field in fields]

    @classmethod
    def load(cls, project: AgentProject, index: dict[str, Any]) -> TextEmbedder:
        """Load the embedder that `store.index` of langgraph.json configures."""
        return cls(
            _load(project, index["embed"]), index["dims"], index.get("fields") or (WHOLE_VALUE,)
        )

    def texts(self, value: Any, index: Any) -> list[tuple[str, str]]:
        """Return path and text of all indexed fields of a value.

        `index` is the caller's choice: None for the project's fields, False for none.
        """
        if index is False:
            return []
        fields = self._fields if index is None else [(path, _tokens(path)) for path in index]
        result = []
        for path, tokens in fields:
            texts = get_text_at_path(value, tokens)
            is_numbered = len(texts) > 1
            result += [
                (f"{path}.{n}" if is_numbered else path, text) for n, text in enumerate(texts)
            ]
        return result

    async def aembed(self, texts: list[str]) -> list[bytes]:
        """Return the packed vectors of documents. A synchronous model runs in a thread."""
        if not texts:
            return []
        return self._packed(await self._embeddings.aembed_documents(texts), len(texts))

    async def aembed_query(self, text: str) -> bytes:
        return self._packed([await self._embeddings.aembed_query(text)], 1)[0]

    def embed(self, texts: list[str]) -> list[bytes]:
        """Do the same as `aembed`, for synchronous code on any thread."""
        if not texts:
            return []
        if self._is_async_only:
            return _run_in_thread(self.aembed(texts))
        return self._packed(self._embeddings.embed_documents(texts), len(texts))

    def embed_query(self, text: str) -> bytes:
        if self._is_async_only:
            return _run_in_thread(self.aembed_query(text))
        return self._packed([self._embeddings.embed_query(text)], 1)[0]

    async def execute(self, params: dict[str, Any]) -> Any:
        """Return the vector of `query`, or the paths and vectors of `value`, in base64."""
        if "query" in params:
            return base64.b64encode(await self.aembed_query(params["query"])).decode()
        texts = self.texts(params["value"], params.get("index"))
        vectors = await self.aembed([text for _, text in texts])
        return [
            [path, base64.b64encode(vector).decode()]
            for (path, _), vector in zip(texts, vectors, strict=True)
        ]

    def _packed(self, vectors: Any, count: int) -> list[bytes]:
        vectors = list(vectors)
        if len(vectors) != count:
            raise ValueError(f"The model returned {len(vectors)} vectors for {count} texts.")
        return [self._pack(vector) for vector in vectors]

    def _pack(self, vector: Any) -> bytes:
        numbers = [float(number) for number in vector]
        if len(numbers) != self.dims:
            raise ValueError(
                f"The model returned a vector of {len(numbers)} numbers, but `store.index.dims` is"
                f" {self.dims}."
            )
        if not all(math.isfinite(number) for number in numbers):
            raise ValueError("The model returned a vector with a number that is not finite.")
        return struct.pack(f"<{self.dims}f", *numbers)


def _tokens(path: str) -> list[str]:
    """Return the tokens of a path; empty for the whole value."""
    return [] if path == WHOLE_VALUE else tokenize_path(path)


def _run_in_thread(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine from a thread that may already have a running loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def _load(project: AgentProject, text: str) -> Any:
    module, _, _ = text.partition(":")
    if "/" in module or module.endswith(".py") or "." in module:
        return project.load(text, "`store.index.embed`")
    try:
        return ensure_embeddings(text)
    except Exception as error:
        raise ProjectError(
            f"`store.index.embed` is `{text}`, and that model cannot be loaded:"
            f" {type(error).__name__}: {error}"
        ) from error
