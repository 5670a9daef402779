"""What the API server of a `pumice up` holds, asked for as any client would."""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["Api"]

_PAGE = 500


class Api:
    """A connection with the rights of the data directory's kubeconfig."""

    def __init__(self, data_dir: Path) -> None:
        fields = (line.strip().split(": ", 1) for line in (data_dir / "kubeconfig").read_text().splitlines() if ": " in line)
        config = {name: value.strip('"') for name, value in fields}
        self._server = config["server"]
        authority = base64.b64decode(config["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=authority)
        with tempfile.NamedTemporaryFile() as file:
            for name in ("client-certificate-data", "client-key-data"):
                file.write(base64.b64decode(config[name]))
            file.flush()
            self._tls.load_cert_chain(file.name)

    def get(self, path: str, **query: str) -> Any:
        """The JSON at a path."""
        url = f"{self._server}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, context=self._tls) as answer:
            return json.load(answer)

    def largest(self) -> tuple[str, int]:
        """The largest object there is but for definitions of types: what it is, and its bytes as compact JSON."""
        found = ((f"{kind} {item['metadata']['name']}", _bytes(item)) for kind, item in self._objects())
        return max(found, key=lambda object: object[1], default=("none", 0))

    def _objects(self) -> Iterator[tuple[str, Any]]:
        for root in self._roots():
            for resource in self.get(root)["resources"]:
                if "list" in resource["verbs"] and resource["kind"] != "CustomResourceDefinition":
                    for item in self._pages(f"{root}/{resource['name']}"):
                        yield resource["kind"], item

    def _roots(self) -> list[str]:
        groups = self.get("/apis")["groups"]
        return ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]

    def _pages(self, path: str) -> Iterator[Any]:
        query = {"limit": str(_PAGE)}
        while True:
            page = self.get(path, **query)
            yield from page["items"]
            if not (more := page["metadata"].get("continue")):
                return
            query["continue"] = more


def _bytes(item: Any) -> int:
    return len(json.dumps(item, separators=(",", ":"), ensure_ascii=False).encode())
