"""A fake embedding model: one dimension for each of three words."""

WORDS = ("tea", "cake", "sea")


async def embed(texts):
    if any("poison" in text for text in texts):
        raise RuntimeError("the model is down")
    if any("short" in text for text in texts):
        return [[1.0] for _ in texts]
    return [[float(text.count(word)) for word in WORDS] for text in texts]
