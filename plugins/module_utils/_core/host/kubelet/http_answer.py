# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Answers of HTTP servers: the kubelet's healthz and configuration, and the API server of its kubeconfig."""

from __future__ import annotations

import http.client
import typing as t

from ...model.values.records import NamedTuple

LONGEST = 4096  # the most bytes of an answer that are read


class Tls(NamedTuple):
    """An encrypted connection. ``certificate`` and ``key`` are the paths of the client's files (empty: no client certificate).

    ``verified``: the server's certificate is verified with ``authority`` or ``authority_file``, else with the machine's authorities.
    """

    certificate: str = ""
    key: str = ""
    verified: bool = False
    authority: str = ""
    authority_file: str = ""


def get(
    address: str, port: int, path: str, timeout: float, tls: t.Optional[Tls] = None, longest: int = LONGEST
) -> tuple[int, str]:
    """The status and the beginning of the body; 0 and the reason without an answer. Never raises."""
    connection: t.Optional[http.client.HTTPConnection] = None
    try:
        connection = connected(address, port, timeout, tls)
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read(longest).decode(errors="replace").strip()
    except (OSError, ValueError, http.client.HTTPException) as error:
        return 0, str(error) or type(error).__name__
    finally:
        if connection is not None:
            connection.close()


def connected(address: str, port: int, timeout: float, tls: t.Optional[Tls]) -> t.Any:
    """A connection. No certificate of a server on this machine is verified: such certificates are often self-signed."""
    if tls is None:
        return http.client.HTTPConnection(address, port, timeout=timeout)
    import ssl

    if tls.verified:
        context = ssl.create_default_context(cafile=tls.authority_file or None, cadata=tls.authority or None)
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if tls.certificate:
        context.load_cert_chain(tls.certificate, tls.key)
    return http.client.HTTPSConnection(address, port, timeout=timeout, context=context)
