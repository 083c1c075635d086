"""Destinations of captured files, by URL: a folder, Azure Blob or Data Lake storage, S3.

A task stages a file; the driver publishes it, which makes it visible as a whole. If a file of that name with the same
span exists, publishing succeeds; any other existing file is an error. Error texts never contain a credential.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final
from urllib.parse import urlsplit

from hubmere.model.extras import install_command
from hubmere.pipeline.capture.destinations.base import (
    Destination,
    DestinationFailed,
    InvalidDestination,
    NameTaken,
    Stored,
    Upload,
)

__all__ = [
    "Destination", "DestinationFailed", "InvalidDestination", "NameTaken", "Stored", "Upload", "destination_of",
]  # fmt: skip

# URL scheme, its module, and the package that it needs.
_MODULES: Final = {
    "file": ("local", "pyarrow"),
    "az": ("blob", "azure-storage-blob"),
    "s3": ("s3", "boto3"),
}


def destination_of(url: str, options: Mapping[str, str]) -> Destination:
    """The destination of a URL."""
    scheme = urlsplit(url).scheme
    if scheme not in _MODULES:
        raise InvalidDestination(url, f"begins with none of {', '.join(f'{name}://' for name in _MODULES)}")
    module, package = _MODULES[scheme]
    try:
        opener: Callable[[str, Mapping[str, str]], Destination] = import_module(f"{__name__}.{module}").open_destination
    except ImportError as error:
        raise InvalidDestination(
            url, f"needs {package}, which is not installed ({error}); install with: {install_command('capture')}"
        ) from None
    return opener(url, options)
