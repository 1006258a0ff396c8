"""A model that knows six words, by how often they occur."""

WORDS = ("tea", "cake", "sea", "ship", "moon", "sun")


def embed(texts):
    if any("unspeakable" in text for text in texts):
        raise ValueError("that cannot be said")
    return [[float(text.lower().count(word)) for word in WORDS] for text in texts]
