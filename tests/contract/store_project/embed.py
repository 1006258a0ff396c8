"""An embedding model that counts the occurrences of six words."""

WORDS = ("tea", "cake", "sea", "ship", "moon", "sun")


def embed(texts):
    if any("unspeakable" in text for text in texts):
        raise ValueError("this text cannot be embedded")
    return [[float(text.lower().count(word)) for word in WORDS] for text in texts]
