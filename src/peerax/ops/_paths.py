"""Paths tell the kinds of messages on one channel apart: values, their tangents, their cotangents."""


def tangent_path(path: str) -> str:
    """The path of the tangents of messages with this path."""
    return path + "t"


def cotangent_path(path: str) -> str:
    """The path of the cotangents of messages with this path. Transposing twice leads back."""
    return path[:-1] if path.endswith("c") else path + "c"
