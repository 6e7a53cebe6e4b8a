# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Whether a node is Ready, by an answer of the API server in the kubelet's kubeconfig, asked with the kubelet's certificate.

Messages contain nothing of a kubeconfig except paths, the server's address and names of keys.
"""

from __future__ import annotations

import base64
import calendar
import json
import posixpath
import time
import typing as t
import urllib.parse

from ...model.values.errors import CorralError
from ...model.values.records import NamedTuple
from ..files import Host, Unreadable
from . import kubelet_node
from .http_answer import Tls

SECONDS = 5.0
LONGEST = 4 << 20  # the most bytes of an answer: a node object lists the node's images
PORT = 443
TIME = "%Y-%m-%dT%H:%M:%SZ"
# Unsupported keys of a kubeconfig: Corral connects without a proxy, under the server's own name, and verifies the certificate.
UNSUPPORTED = ("insecure-skip-tls-verify", "tls-server-name", "proxy-url")


class Unknown(Exception):
    """An error: whether the node is Ready is unknown; the text says why."""


class Server(NamedTuple):
    """An API server and how to connect to it; ``path`` comes before the path of each request."""

    address: str
    port: int
    path: str
    tls: Tls


class Readiness(NamedTuple):
    """Whether the node is Ready (None: not known), why not, and when the kubelet last reported (epoch seconds)."""

    ready: t.Optional[bool]
    said: str = ""
    reported: float = 0.0


def node_name(host: Host, flags: t.Mapping[str, str]) -> str:
    """The name under which a kubelet registers its node."""
    return (flags.get("hostname-override") or host.read("/proc/sys/kernel/hostname") or "").strip().lower()


def readiness(host: Host, kubeconfig: str, node: str) -> Readiness:
    """The readiness of a node that the API server reports now. Never raises."""
    try:
        server = server_of(host, kubeconfig)
        path = f"{server.path}/api/v1/nodes/{urllib.parse.quote(node, safe='')}"
        status, text = host.ask(server.address, server.port, path, SECONDS, server.tls, LONGEST)
        if status != 200:
            said = f"status {status}" if status else " ".join(text.split())[:200]
            raise Unknown(f"https://{server.address}:{server.port}{path}: {said}")
        return of_node(text)
    except Unknown as error:
        return Readiness(None, str(error))


def of_node(text: str) -> Readiness:
    """The condition Ready of a node object. Raises Unknown."""
    try:
        conditions = json.loads(text)["status"]["conditions"]
        (found,) = [one for one in conditions if one["type"] == "Ready"]
        reported = calendar.timegm(time.strptime(found["lastHeartbeatTime"], TIME))
    except (ValueError, LookupError, TypeError):
        raise Unknown("the API server's answer has no condition Ready") from None
    if found.get("status") == "True":
        return Readiness(True, "", float(reported))
    said = " ".join(f"{found.get('reason')}: {found.get('message')}".split())[:200]
    return Readiness(False, f"Ready is {found.get('status')}, {said}", float(reported))


def server_of(host: Host, kubeconfig: str) -> Server:
    """The server of a kubeconfig's current context, with the files of the user's certificate. Raises Unknown."""
    try:
        # A recording must not contain a file with secrets.
        text = host.unrecorded(lambda: host.attempt(host.read, kubeconfig))
        if isinstance(text, Unreadable):
            raise Unknown(str(text))
        data = None if text is None else kubelet_node.load(text, kubeconfig)
    except CorralError:
        raise Unknown(f"{kubeconfig} is not YAML, or PyYAML is not installed") from None
    if data is None:
        raise Unknown(
            f"{kubeconfig}: {kubelet_node.why_none(host, kubeconfig)}" if text is None else f"{kubeconfig} is empty"
        )
    try:
        context = named(data, "contexts", "context", data["current-context"])
        cluster = named(data, "clusters", "cluster", context["cluster"])
        user = named(data, "users", "user", context["user"])
        url = urllib.parse.urlsplit(cluster["server"])
        address, port = url.hostname or "", url.port or PORT
    except (LookupError, TypeError, ValueError, AttributeError):
        raise Unknown(f"{kubeconfig} names no server and user in its current context") from None
    odd = [key for key in UNSUPPORTED if cluster.get(key)]
    if url.scheme != "https" or not address or odd:
        raise Unknown(f"{kubeconfig}: {' and '.join(odd) or 'its server'} is not supported")
    return Server(address, port, url.path.rstrip("/"), tls_of(kubeconfig, cluster, user))


def named(data: t.Any, kind: str, key: str, name: str) -> dict[str, t.Any]:
    """The value of ``key`` in the entry named ``name`` of a kubeconfig's list ``kind``. Raises LookupError, TypeError."""
    found = next(one[key] for one in [*data[kind], {"name": name, key: None}] if one["name"] == name)
    if not isinstance(found, dict):
        raise TypeError(kind)
    return found


def tls_of(kubeconfig: str, cluster: t.Mapping[str, t.Any], user: t.Mapping[str, t.Any]) -> Tls:
    """The kubelet's client certificate and key, and the authority that verifies the server's certificate. Raises Unknown."""

    def path(value: object) -> str:
        return posixpath.join(posixpath.dirname(kubeconfig), str(value)) if value else ""

    certificate, key = path(user.get("client-certificate")), path(user.get("client-key"))
    if not certificate or not key:
        raise Unknown(f"{kubeconfig}: its user has no client-certificate and client-key, which name files")
    try:
        # Text that is not ASCII is a comment, and ssl refuses such text.
        data = base64.b64decode(str(cluster.get("certificate-authority-data") or ""), validate=True)
        authority = data.decode("ascii", "ignore")
    except ValueError:
        raise Unknown(f"{kubeconfig}: certificate-authority-data is not base64") from None
    file = "" if authority else path(cluster.get("certificate-authority"))
    return Tls(certificate, key, verified=True, authority=authority, authority_file=file)
