# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The types of amounts in a profile: sizes, page sizes and quantities of resources.

Readers follow the rules in schema_types.py.
"""

from __future__ import annotations

import re

from ..values import quantity
from ..values.sizes import Share, page_text, share_text, size_text
from .schema_types import Type, kind, read_text

# The most bytes of a size (2^60): no machine has as many, and every sum fits into the kernel's 64 bits.
SIZE_LIMIT = 1 << 60
# A smaller amount of memory was probably written without its unit, such as Mi or Gi.
LEAST_MEMORY = 1 << 20
TOO_LITTLE = "is less than 1Mi: write it with its unit, such as 512Mi"
LEAST_LOG = 1 << 10
# The name under which quotas count workloads.
COUNT = "count/workloads"
_SHARE = re.compile(r"([0-9]{1,3})(?:\.([0-9]{1,2}))?%")


def _size(value: object) -> int:
    """Bytes, from a Kubernetes quantity."""
    if isinstance(value, float):
        raise ValueError("is a number with a decimal point: write a quantity as text, such as 1536Mi")
    if isinstance(value, int) and not isinstance(value, bool):
        size = int(value)
    else:
        text = read_text(value, such_as="512Mi")
        size = _quantity(text)
    if size <= 0:
        raise ValueError("is not more than 0: write a size such as 512Mi, or leave the key out")
    if size > SIZE_LIMIT:
        raise ValueError(f"is more than any machine has: write a size up to {size_text(SIZE_LIMIT)}")
    return size


def _memory(value: object) -> int:
    """Bytes of memory. Raises ValueError for fewer than LEAST_MEMORY bytes, a likely mistake."""
    size = _size(value)
    if size < LEAST_MEMORY:
        raise ValueError(TOO_LITTLE)
    return size


def _log_size(value: object) -> int:
    """Bytes of a log. Raises ValueError for fewer than LEAST_LOG bytes, a likely mistake."""
    size = _size(value)
    if size < LEAST_LOG:
        raise ValueError("is less than 1Ki: write it with its unit, such as 10Mi")
    return size


def _quantity(text: str) -> int:
    if text.strip().endswith("%"):
        raise ValueError("a share in percent depends on the node: write a size such as 512Mi")
    if len(text) > 64:
        raise ValueError("is too long for a quantity: write a size such as 512Mi")
    try:
        amount = quantity.parse(text)
    except ValueError:
        wanted = binary(text)
        hint = f"did you mean {wanted}?" if wanted else "write a size such as 512Mi or 1Gi"
        raise ValueError(f"is not a quantity as Kubernetes writes it: {hint}") from None
    size = amount.value()
    if not amount.is_whole():
        wanted = " (m means thousandths; did you mean Mi?)" if text.endswith("m") else ""
        raise ValueError(f"is not a whole number of bytes{wanted}: write a size such as 512Mi")
    return size


def binary(text: str) -> str | None:
    """The quantity that is probably meant by ``512 MB``, ``512mb``, ``512MiB`` or ``2048kB``; None for other text."""
    match = re.fullmatch(r"([0-9]{1,18})\s*([kmgt])i?b?", text.strip(), re.IGNORECASE)
    return f"{match.group(1)}{match.group(2).upper()}i" if match else None


def _page_size(value: object) -> int:
    """A page size in KiB."""
    if isinstance(value, int) and not isinstance(value, bool):
        raise ValueError("has no unit: write a page size such as 2Mi or 1Gi")
    size = _size(read_text(value, such_as="2Mi"))
    if size & (size - 1) or not 1 << 13 <= size <= 1 << 44:
        decimal = re.fullmatch(r"([0-9]+)([kMGT])", str(value))
        hint = (
            f"did you mean {decimal.group(1)}{decimal.group(2).upper()}i?"
            if decimal
            else "write one such as 2Mi or 1Gi"
        )
        raise ValueError(f"is not a hugepage size (a power of two): {hint}")
    return size >> 10


def _amount(value: object) -> quantity.Quantity:
    """A Kubernetes quantity. profile_workloads.py checks whether the quantity is valid for its resource."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"is {kind(value)}, not a quantity: write it as in 2, 500m or 1Gi")
    if isinstance(value, str) and len(value) > 64:
        raise ValueError("is too long for a quantity: write it as in 2, 500m or 1Gi")
    try:
        amount = quantity.parse(value)
    except ValueError:
        wanted = binary(value) if isinstance(value, str) else None
        hint = f"did you mean {wanted}?" if wanted else "write it as in 2, 500m or 1Gi"
        raise ValueError(f"is not a quantity as Kubernetes writes it: {hint}") from None
    if amount.nano > SIZE_LIMIT * quantity.NANO:
        raise ValueError(f"is more than any machine has: write at most {size_text(SIZE_LIMIT)}")
    return amount


def _resource(value: object) -> str:
    """The name of a resource other than a device: cpu, memory, pids, or hugepages with the kubelet's page size (hugepages-2Mi)."""
    text = value if isinstance(value, str) and len(value) <= 64 else ""
    if text in ("cpu", "memory", "pids"):
        return text
    prefix, dash, size = text.partition("-")
    if prefix == "hugepages" and dash:
        try:
            return f"hugepages-{page_text(_page_size(size))}"
        except ValueError:
            pass
    if "storage" in text:
        raise ValueError(
            "is storage, which Corral does not give: write cpu, memory, pids or hugepages-2Mi (a page size)"
        )
    raise ValueError("is not a resource that Corral gives: write cpu, memory, pids or hugepages-2Mi (a page size)")


def split_quota_resource(name: str) -> tuple[str, str]:
    """The section and the resource of a name in a quota: ``requests.cpu`` → requests, cpu; for ``count/workloads`` the section is empty."""
    section, dot, resource = name.partition(".")
    return (section, resource) if dot and section in ("requests", "limits") else ("", name)


def _share(value: object) -> Share:
    """A share in percent, such as 25% or 12.5%."""
    text = read_text(value, such_as="25%")
    match = _SHARE.fullmatch(text.strip())
    parts = int(match.group(1)) * 100 + int((match.group(2) or "0").ljust(2, "0")) if match else 0
    if not 0 < parts <= 10000:
        raise ValueError("is not a share: write one above 0% and up to 100%, with at most two decimals, such as 25%")
    return Share(parts)


def _memory_or_share(value: object) -> int | Share:
    """Bytes, or a share of each NUMA node's memory."""
    return _share(value) if isinstance(value, str) and value.strip().endswith("%") else _memory(value)


SHARE = Type("share in percent", _share, pattern=rf"\s*{_SHARE.pattern}\s*", write=share_text)
SIZE = Type("quantity in bytes", _size, bounds=(1, SIZE_LIMIT), pattern=".+", write=size_text)
MEMORY = Type("quantity in bytes, from 1Mi", _memory, bounds=(LEAST_MEMORY, SIZE_LIMIT), pattern=".+", write=size_text)
MEMORY_OR_SHARE = Type(
    "quantity in bytes, from 1Mi, or share in percent",
    _memory_or_share,
    MEMORY.bounds,
    pattern=".+",
    write=lambda amount: share_text(amount) if isinstance(amount, Share) else size_text(amount),
)
LOG_SIZE = Type("quantity in bytes, from 1Ki", _log_size, bounds=(LEAST_LOG, SIZE_LIMIT), pattern=".+", write=size_text)
PAGE_SIZE = Type("page size", _page_size, write=page_text)
QUANTITY = Type("quantity", _amount, bounds=(0, SIZE_LIMIT), pattern=".+")
RESOURCE = Type("resource", _resource)
