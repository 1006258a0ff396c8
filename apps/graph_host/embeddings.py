"""What texts mean, as a model of the project measures it: `store.index` of langgraph.json."""

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

from .project import Project, ProjectError

T = TypeVar("T")

WHOLE = "$"


class Embedder:
    """The project's embedding function, asked for whole batches.

    Vectors are packed as 32-bit floats, the least byte first.
    """

    def __init__(self, embed: Any, dims: int, fields: Sequence[str] = (WHOLE,)) -> None:
        self._embeddings: Embeddings = ensure_embeddings(embed)
        self._is_async_only = hasattr(self._embeddings, "afunc")
        self.dims = dims
        self._fields = [(field, _tokens(field)) for field in fields]

    @classmethod
    def of(cls, project: Project, index: dict[str, Any]) -> Embedder:
        """What `store.index` of langgraph.json names."""
        return cls(_load(project, index["embed"]), index["dims"], index.get("fields") or (WHOLE,))

    def texts(self, value: Any, index: Any) -> list[tuple[str, str]]:
        """The path and the text of everything in a value that is to be found by meaning.

        `index` is what the caller said: None for the project's own fields, False for nothing.
        """
        if index is False:
            return []
        fields = self._fields if index is None else [(path, _tokens(path)) for path in index]
        found = []
        for path, tokens in fields:
            texts = get_text_at_path(value, tokens)
            several = len(texts) > 1
            found += [(f"{path}.{n}" if several else path, text) for n, text in enumerate(texts)]
        return found

    async def aembed(self, texts: list[str]) -> list[bytes]:
        """The vectors of documents. A synchronous model works in a thread."""
        if not texts:
            return []
        return self._packed(await self._embeddings.aembed_documents(texts), len(texts))

    async def aembed_query(self, text: str) -> bytes:
        return self._packed([await self._embeddings.aembed_query(text)], 1)[0]

    def embed(self, texts: list[str]) -> list[bytes]:
        """`aembed` for synchronous code, on whatever thread."""
        if not texts:
            return []
        if self._is_async_only:
            return _elsewhere(self.aembed(texts))
        return self._packed(self._embeddings.embed_documents(texts), len(texts))

    def embed_query(self, text: str) -> bytes:
        if self._is_async_only:
            return _elsewhere(self.aembed_query(text))
        return self._packed([self._embeddings.embed_query(text)], 1)[0]

    async def answer(self, params: dict[str, Any]) -> Any:
        """For the platform: the vector of a `query`, or the paths and vectors of a `value`."""
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
            raise ValueError(f"{len(vectors)} vectors came back for {count} texts.")
        return [self._pack(vector) for vector in vectors]

    def _pack(self, vector: Any) -> bytes:
        numbers = [float(number) for number in vector]
        if len(numbers) != self.dims:
            raise ValueError(
                f"a vector of {len(numbers)} numbers came back, and `store.index.dims` is"
                f" {self.dims}."
            )
        if not all(math.isfinite(number) for number in numbers):
            raise ValueError("a vector with a number that is not finite came back.")
        return struct.pack(f"<{self.dims}f", *numbers)


def _tokens(path: str) -> list[str]:
    """A path taken apart; nothing of it means the whole value."""
    return [] if path == WHOLE else tokenize_path(path)


def _elsewhere(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, although this thread may have a loop that waits for it."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def _load(project: Project, text: str) -> Any:
    place, _, _ = text.partition(":")
    if "/" in place or place.endswith(".py") or "." in place:
        return project.load(text, "`store.index.embed`")
    try:
        return ensure_embeddings(text)
    except Exception as error:
        raise ProjectError(
            f"`store.index.embed` is `{text}`, and that model cannot be had:"
            f" {type(error).__name__}: {error}"
        ) from error
