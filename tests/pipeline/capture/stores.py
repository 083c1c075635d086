"""A destination for tests: its URL and its options."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hubmere.pipeline.capture.destinations import Destination, destination_of

# Azurite's public account, which is the same on every machine.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True)
class Store:
    """One of each kind."""

    url: str
    options: Mapping[str, str]

    def opened(self, **others: str) -> Destination:
        """Open the destination; a test may pass wrong options."""
        return destination_of(self.url, {**self.options, **others})

    def remove(self, name: str) -> None:
        """Delete an object or file, which the product never does."""
        parts = urlsplit(self.url)
        if parts.scheme == "file":
            Path(parts.path, name).unlink()
        elif parts.scheme == "az":
            from azure.storage.blob import BlobClient

            container, _, prefix = parts.path.strip("/").partition("/")
            credential = {"account_name": ACCOUNT, "account_key": KEY}
            BlobClient(self.options["endpoint"], container, f"{prefix}/{name}", credential=credential).delete_blob()
        else:
            s3_client(self.options).delete_object(Bucket=parts.netloc, Key=f"{parts.path.strip('/')}/{name}")


def s3_client(options: Mapping[str, str]) -> Any:
    """A client of the S3 server."""
    import boto3

    return boto3.client(
        "s3", endpoint_url=options["endpoint"], region_name="us-east-1",
        aws_access_key_id=options["access_key_id"], aws_secret_access_key=options["secret_access_key"],
    )  # fmt: skip
