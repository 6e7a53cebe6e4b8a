# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""What an HTTP server of this machine answers: the kubelet's healthz."""

from __future__ import annotations


def get(address: str, port: int, path: str, timeout: float) -> tuple[int, str]:
    """The status and the beginning of the body; status 0 and the reason where there is no answer. Never raises."""
    import http.client  # Only a plan that starts a kubelet asks.

    connection = http.client.HTTPConnection(address, port, timeout=timeout)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read(4096).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error) or type(error).__name__
    finally:
        connection.close()
