# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The configuration that the running kubelet reports over its API."""

from __future__ import annotations

import json
import typing as t

from ...model.kubelet.kubelet_config import Config
from ..files import Host
from .http_answer import Tls

PATH, ROOT_KEY = "/configz", "kubeletconfig"
PORT = 10250
# The address at which Corral asks a server that listens on all addresses.
ANY = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - asked, not bound
# kubeadm's certificate for requests to kubelets, on control-plane nodes. Only a kubelet without authentication needs no certificate.
CLIENT = "/etc/kubernetes/pki/apiserver-kubelet-client"
SECONDS = 5.0
LONGEST = 1 << 20  # the most bytes of an answer that are read


def running_configuration(host: Host, config: Config) -> t.Optional[dict[str, t.Any]]:
    """The configuration that the running kubelet reports over its API on this machine; None for an answer without a configuration.

    ``config``, from the kubelet's files and flags, has the kubelet's address and port.
    """
    address, port = config.get("address") or "", config.get("port") or PORT
    if not isinstance(address, str) or not isinstance(port, int):
        return None
    has_client = host.exists(f"{CLIENT}.crt") and host.exists(f"{CLIENT}.key")
    tls = Tls(f"{CLIENT}.crt", f"{CLIENT}.key") if has_client else Tls()
    status, text = host.ask(ANY.get(address, address), port, PATH, SECONDS, tls, LONGEST)
    try:
        found = json.loads(text)[ROOT_KEY] if status == 200 else None
    except (ValueError, LookupError, TypeError):
        return None
    return found if isinstance(found, dict) else None
