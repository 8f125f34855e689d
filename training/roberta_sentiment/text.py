"""What is done to a tweet before it is cut into tokens, in training as in serving."""


def plain(text: str) -> str:
    """User names as `@user`, links as `http`: who and where do not tell the mood.

    `training/packaging/inference.py` does the same for a model whose configuration asks for it.
    """
    return " ".join(
        "@user" if len(word) > 1 and word[0] == "@" else "http" if word[:4] == "http" else word
        for word in text.split(" ")
    )
