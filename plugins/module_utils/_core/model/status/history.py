# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The profiles that were applied on a node, the newest first: the profile in force, and the profiles that rollback can apply again."""

from __future__ import annotations

import json
import typing as t

from ..values.errors import refusal
from ..values.records import NamedTuple

if t.TYPE_CHECKING:
    from .json_shapes import AppliedProfile

LENGTH = 10  # the most profiles that are kept besides the profile in force
HASH_LENGTH = 12
SHORTEST_HASH = 4  # a text with fewer digits is the number of profiles to go back
NUMBER_OR_HASH = (
    f"how many profiles back (1 to {LENGTH}), or at least {SHORTEST_HASH} digits of a hash of corral history"
)


class HistoryEntry(NamedTuple):
    """An applied profile, and the time when it was applied (epoch seconds; None: an earlier version wrote the entry)."""

    profile: t.Any
    applied: t.Optional[int] = None


def from_data(data: t.Any) -> list[HistoryEntry]:
    """The entries of the history's file; in a file of an older version an entry is the plain profile."""
    rows = data if isinstance(data, list) else []
    return [
        HistoryEntry(row["profile"], row["applied"])
        if set(row) == {"profile", "applied", "hash"} and isinstance(row["applied"], int)
        else HistoryEntry(row)
        for row in rows
        if isinstance(row, dict)
    ]


def to_data(kept: t.Iterable[HistoryEntry]) -> list[dict[str, t.Any]]:
    """The entries as data for the history's file; an entry without a time is written as the plain profile."""
    return [
        entry.profile
        if entry.applied is None
        else {"profile": entry.profile, "applied": entry.applied, "hash": hash_of(entry.profile)}
        for entry in kept
    ]


def divided(kept: t.Sequence[HistoryEntry], in_force: t.Any) -> tuple[t.Optional[HistoryEntry], list[HistoryEntry]]:
    """The entry of the profile in force (None: no profile is in force), and the entries of earlier profiles.

    A run writes the history before its profile takes force. If the run is killed in between, the first entry is not in force.
    """
    if in_force is None:
        return None, list(kept)
    if kept and kept[0].applied is not None and kept[0].profile == in_force:
        return kept[0], list(kept[1:])
    if len(kept) > 1 and kept[0].applied is not None and kept[1].profile == in_force:
        return kept[1], list(kept[2:])
    return HistoryEntry(in_force), list(kept)


def with_profile(kept: t.Sequence[HistoryEntry], last: t.Any, new: t.Any, now: int) -> list[HistoryEntry]:
    """The history after the profile ``new`` was applied in place of the profile ``last``."""
    before, past = divided(kept, last)
    if before is None and past and past[0].profile == new:
        past = past[1:]  # the entry of a killed run, whose profile did not take force
    return [HistoryEntry(new, now), *([before] if before else []), *past][: LENGTH + 1]


def hash_of(profile: t.Any) -> str:
    """The hash that names a profile: the first digits of the SHA-256 of the profile's canonical JSON."""
    import hashlib  # a tick does not need this module

    text = json.dumps(profile, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]


def number_of(to: str) -> t.Optional[int]:
    """The number of profiles to go back; None for a hash. Raises CorralError for other text."""
    if to.isascii() and to.isdecimal() and len(to) < SHORTEST_HASH:
        if not 1 <= int(to) <= LENGTH:
            raise refusal(NUMBER_OR_HASH, path="to", value=to)
        return int(to)
    if not SHORTEST_HASH <= len(to) <= HASH_LENGTH or not set(to) <= set("0123456789abcdef"):
        raise refusal(NUMBER_OR_HASH, path="to", value=to)
    return None


def chosen(in_force: t.Optional[HistoryEntry], past: t.Sequence[HistoryEntry], to: str) -> HistoryEntry:
    """The entry that ``to`` names, by the number of profiles to go back or the beginning of a hash. Raises CorralError."""
    number = number_of(to)
    if number is not None:
        if not past:
            raise refusal("no profile was applied before this one: corral.node.remove restores the node as it was")
        if number > len(past):
            raise refusal(f"corral history has {len(past)} before the one in force", path="to", value=to)
        return past[number - 1]
    every = [*([in_force] if in_force else []), *past]
    by_hash: dict[str, HistoryEntry] = {}
    for entry in every:
        digits = hash_of(entry.profile)
        if digits.startswith(to):
            by_hash.setdefault(digits, entry)
    if len(by_hash) > 1:
        raise refusal(f"several hashes begin so: {', '.join(sorted(by_hash))}", path="to", value=to)
    if not by_hash:
        raise refusal("no profile with this hash is kept (corral history)", path="to", value=to)
    return next(iter(by_hash.values()))


def shown(in_force: t.Optional[HistoryEntry], past: t.Sequence[HistoryEntry]) -> list[AppliedProfile]:
    """The entries as JSON data. An entry's number says how many profiles to go back; number 0 is the profile in force."""
    rows = [(0, in_force)] if in_force else []
    rows += enumerate(past, 1)
    return [
        {
            "number": number,
            "hash": hash_of(entry.profile),
            "name": str(entry.profile.get("name", "")) if isinstance(entry.profile, dict) else "",
            "applied": entry.applied,
            "state": "kept" if number else "in force",
        }
        for number, entry in rows
    ]
